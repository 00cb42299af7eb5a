// Takes Nexmark's events (bench/nexmark.py); emits who came and opened an auction within the same ten seconds.
export const config = { source: 'nexmark', sink: 'nexmark_q8' };

const every10s = { tumbling: '10s', time: 'dateTime', delay: '5s' };

const persons = stream
  .filter(event => event.type === 'person')
  .map(({ id, name, dateTime }) => ({ id, name, dateTime }))
  .keyBy('id', { name: 'persons' })
  .window({ ...every10s, name: 'arrived' })
  .reduce(person => person);

const sellers = stream
  .filter(event => event.type === 'auction')
  .map(({ seller, dateTime }) => ({ seller, dateTime }))
  .keyBy('seller', { name: 'sellers' })
  .window({ ...every10s, name: 'opened' })
  .count();

// The results of one window have one time, its end.
persons.join(sellers, { within: '0s' }, ({ start, value: { id, name } }) => ({ id, name, start }));
