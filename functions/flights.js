// Takes flights { tailnum, air_time, distance, … }; emits the running totals of each aircraft.
// air_time is in minutes, and null for flights that were cancelled or diverted; distance is in miles.
export const config = { source: 'flights', sink: 'aircraft_totals', key: 'tailnum' };

stream.map(flight => {
  const total = state.aircraft[flight.tailnum] ?? { flights: 0, air_time: 0, distance: 0 };
  total.flights += 1;
  total.air_time += flight.air_time ?? 0;
  total.distance += flight.distance;
  state.aircraft[flight.tailnum] = total;
  return { tailnum: flight.tailnum, ...total };
});
