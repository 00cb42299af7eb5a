// Takes Nexmark's events (bench/nexmark.py); emits, every two seconds, the auctions with the most bids in the last ten.
export const config = { source: 'nexmark', sink: 'nexmark_q5' };

stream
  .filter(event => event.type === 'bid')
  .map(({ auction, dateTime }) => ({ auction, dateTime }))
  .keyBy('auction')
  .window({ hopping: { size: '10s', every: '2s' }, time: 'dateTime', delay: '5s' })
  .count()
  // What ends together is compared: a window's result has the time of its end, so as much as one step holds just that.
  .keyBy('end')
  .window({ tumbling: '2s' })
  .aggregate({
    init: () => ({ bids: 0, auctions: [] }),
    add: (most, { key, value }) => {
      if (value < most.bids) return most;
      return { bids: value, auctions: value > most.bids ? [key] : [...most.auctions, key] };
    },
  })
  .flatMap(({ end, value }) => value.auctions.map(key => ({ auction: Number(key), bids: value.bids, start: end - 10_000, end })));
