// Takes Nexmark's events (bench/nexmark.py); emits how often each bidder bid in every ten seconds of the time of publishing.
export const config = { source: 'nexmark', sink: 'nexmark_q12' };

// A window without `time` goes by context.timestamp: when the event was published.
stream
  .filter(event => event.type === 'bid')
  .map(({ bidder }) => ({ bidder }))
  .keyBy('bidder')
  .window({ tumbling: '10s' })
  .count()
  .map(({ key, start, end, value }) => ({ bidder: Number(key), bids: value, start, end }));
