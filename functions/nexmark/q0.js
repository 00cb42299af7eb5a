// Takes Nexmark's events (bench/nexmark.py); emits every bid as it is: what it costs to pass an event through.
export const config = { source: 'nexmark', sink: 'nexmark_q0' };

stream
  .filter(event => event.type === 'bid')
  .map(({ auction, bidder, price, dateTime, extra }) => ({ auction, bidder, price, dateTime, extra }));
