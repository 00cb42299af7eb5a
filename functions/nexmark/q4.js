// Takes Nexmark's events (bench/nexmark.py); emits, at each change, the average of the highest bids in a category's auctions.
// Only bids made while their auction was open count. They may come before the auction itself, and wait for it.
export const config = { source: 'nexmark', sink: 'nexmark_q4' };

stream
  .filter(event => event.type === 'auction' || event.type === 'bid')
  .map(event =>
    event.type === 'auction'
      ? { auction: event.id, category: event.category, from: event.dateTime, to: event.expires }
      : { auction: event.auction, price: event.price, at: event.dateTime })
  .keyBy('auction')
  .flatMap(event => {
    const { auction: id } = event;
    if (event.category === undefined && !(id in state.auctions)) {
      state.early[id] = [...(state.early[id] ?? []), event];
      return [];
    }
    const { category, from, to, highest } = state.auctions[id] ?? event;
    const bids = event.category === undefined ? [event] : (state.early[id] ?? []);
    delete state.early[id];
    const valid = bids.filter(({ at }) => from <= at && at <= to).map(({ price }) => price);
    const now = Math.max(highest ?? 0, ...valid);
    state.auctions[id] = { category, from, to, highest: now };
    // The category's sum changes by the difference, and has one more auction at the first bid.
    return now > (highest ?? 0) ? [{ category, more: now - (highest ?? 0), auctions: highest ? 0 : 1 }] : [];
  })
  .keyBy('category')
  .aggregate({
    init: () => ({ sum: 0, auctions: 0 }),
    add: ({ sum, auctions }, change) => ({ sum: sum + change.more, auctions: auctions + change.auctions }),
  })
  .map(({ key, value }) => ({ category: Number(key), average: value.sum / value.auctions }));
