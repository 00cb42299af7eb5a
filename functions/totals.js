// Takes events { userId, amount }; emits the running total of each user. An idle user is forgotten after a week.
export const config = { source: 'events', sink: 'user_totals', key: 'userId', state: { totals: { ttl: '7d' } } };

stream.map(event => {
  const userId = event.userId;
  const value = event.amount;
  state.totals[userId] = (state.totals[userId] || 0) + value;
  return { userId, currentTotal: state.totals[userId] };
});
