// Who is logged in, as GET /v1/me says, and what that one may do. Pure.

export const NOBODY = { user: "", is_administrator: false, teams: [] };

/** Whether one may halt, resume and delete a job. The server asks the same, and has the last word. */
export function may_change(me, job) {
  const role = role_in(me, job.team);
  return me.is_administrator || role === "administrator" || (role === "member" && job.user === me.user);
}

export function role_in(me, team) {
  return me.teams.find((each) => each.team === team)?.role ?? "";
}

/** "administrator of the platform", or "member of vision, viewer of speech". */
export function role_words(me) {
  if (me.is_administrator) {
    return "administrator of the platform";
  }
  return me.teams.map(({ team, role }) => `${role} of ${team}`).join(", ") || "in no team";
}
