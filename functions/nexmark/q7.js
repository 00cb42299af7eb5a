// Takes Nexmark's events (bench/nexmark.py); emits the highest bids of every ten seconds.
export const config = { source: 'nexmark', sink: 'nexmark_q7' };

function higher(best, bids) {
  if (best.length === 0 || bids[0].price > best[0].price) return bids;
  return bids[0].price === best[0].price ? [...best, ...bids] : best;
}

stream
  .filter(event => event.type === 'bid')
  .map(({ auction, bidder, price, dateTime, extra }) => ({ auction, bidder, price, dateTime, extra }))
  // First of each auction, so that the work is spread, then of all.
  .keyBy('auction')
  .window({ tumbling: '10s', time: 'dateTime', delay: '5s' })
  .aggregate({ init: () => [], add: (best, bid) => higher(best, [bid]) })
  .keyBy('end')
  .window({ tumbling: '10s' })
  .aggregate({ init: () => [], add: (best, { value }) => higher(best, value) })
  .flatMap(({ value }) => value);
