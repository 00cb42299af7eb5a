// Takes Nexmark's events (bench/nexmark.py); emits who sells in category 10 and lives in Oregon, Idaho or California.
export const config = { source: 'nexmark', sink: 'nexmark_q3' };

const sellers = stream
  .filter(event => event.type === 'person' && ['OR', 'ID', 'CA'].includes(event.state))
  .map(({ id, name, city, state, dateTime }) => ({ id, name, city, state, dateTime }))
  .keyBy('id', { name: 'sellers' });

// An auction may open before its seller is known: whichever comes later finds the other.
stream
  .filter(event => event.type === 'auction' && event.category === 10)
  .map(({ id, seller, dateTime }) => ({ id, seller, dateTime }))
  .keyBy('seller', { name: 'auctions' })
  .join(sellers, { within: '1d', time: 'dateTime' }, (auction, { name, city, state }) => ({ name, city, state, id: auction.id }));
