// Takes Nexmark's events (bench/nexmark.py); emits every bid with its price in euros, at 0.908 to the dollar.
export const config = { source: 'nexmark', sink: 'nexmark_q1' };

stream
  .filter(event => event.type === 'bid')
  .map(({ auction, bidder, price, dateTime, extra }) => ({ auction, bidder, price: 0.908 * price, dateTime, extra }));
