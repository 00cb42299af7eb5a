// Takes Nexmark's events (bench/nexmark.py); emits bids of middling price with the part of the day and the letters c in them.
export const config = { source: 'nexmark', sink: 'nexmark_q14' };

function partOfDay(time) {
  const hour = new Date(time).getUTCHours();
  if (hour >= 8 && hour <= 18) return 'dayTime';
  return hour <= 6 || hour >= 20 ? 'nightTime' : 'otherTime';
}

stream
  .filter(event => event.type === 'bid')
  .map(bid => ({ ...bid, price: 0.908 * bid.price }))
  .filter(({ price }) => price > 1_000_000 && price < 50_000_000)
  .map(({ auction, bidder, price, dateTime, extra }) => ({
    auction,
    bidder,
    price,
    bidTimeType: partOfDay(dateTime),
    dateTime,
    extra,
    c_counts: extra.split('c').length - 1,
  }));
