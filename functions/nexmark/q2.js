// Takes Nexmark's events (bench/nexmark.py); emits the bids in some auctions: those whose number is a multiple of 123.
export const config = { source: 'nexmark', sink: 'nexmark_q2' };

stream
  .filter(event => event.type === 'bid' && event.auction % 123 === 0)
  .map(({ auction, price }) => ({ auction, price }));
