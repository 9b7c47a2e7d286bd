// A colour for each team: the same as long as the same teams are seen, and as different as eight can be.

/** Gives `index(team)`: a number of a series (s0 to s7), by the alphabet. */
export function team_colours(teams) {
  const sorted = [...new Set(teams)].sort();
  const indices = new Map(sorted.map((team, i) => [team, i % 8]));
  return { teams: sorted, index: (team) => indices.get(team) ?? 7 };
}
