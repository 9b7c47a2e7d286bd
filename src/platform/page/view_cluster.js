// The cluster: each node a box, filled by who holds how much of it; and what each team has of its quota.
import { ask } from "./api.js";
import { amounts_of, share_text, total } from "./amounts.js";
import { empty, error_box, job_link, loading, meter } from "./components.js";
import { act, dialog } from "./dialog.js";
import { h, render } from "./dom.js";
import { percent, plural, whole } from "./format.js";
import { repeat } from "./repeat.js";
import { team_colours } from "./team_colours.js";

const EVERY = 3000;
const MANY_NODES = 48; // from here on boxes are small
const OTHERS = ""; // teams that one does not see

export function show_cluster(root, context) {
  let nodes = null;
  let teams = [];
  let error = null;
  let measure = null; // key of the amount that fills boxes; null: the scarcest
  let chosen = null; // name of the node that is looked at
  document.title = "Cluster · tesser";

  const poll = repeat(
    async (signal) => {
      const [seen, quota] = await Promise.all([ask("/v1/nodes", { signal }), ask("/v1/quota", { signal })]);
      nodes = seen.nodes;
      ({ teams } = quota);
      error = null;
      draw();
    },
    { every: EVERY, failed: (what) => ((error = what), draw()) },
  );

  function draw() {
    render(
      root,
      h("div", { class: "title-row" }, h("h1", null, "Cluster")),
      error_box(error),
      nodes === null
        ? error
          ? null
          : loading()
        : nodes.length === 0
          ? empty("There are no nodes.", "The engine has none, or could not be asked yet.")
          : cluster(),
    );
  }

  function cluster() {
    const amounts = amounts_of(total(nodes.map((node) => node.capacity)));
    const amount = amounts.find((each) => each.key === measure) ?? amounts[0];
    const colours = team_colours(nodes.flatMap((node) => shares_of(node).map((share) => share.team)).filter((team) => team !== OTHERS).concat(teams.map((team) => team.team)));
    const is_dense = nodes.length > MANY_NODES;
    return [
      h(
        "div",
        { class: "cluster-head" },
        h(
          "fieldset",
          { class: "segments" },
          h("legend", { class: "unseen" }, "What fills the boxes"),
          amounts.map((each) =>
            h(
              "label",
              { class: each === amount ? "chosen" : "", key: each.key },
              h("input", {
                type: "radio",
                name: "measure",
                checked: each === amount,
                onchange: () => ((measure = each.key), draw()),
              }),
              each.title,
            ),
          ),
        ),
        legend(colours),
      ),
      overview(amount),
      h(
        "ul",
        { class: `nodes${is_dense ? " dense" : ""}` },
        nodes.map((node) => box(node, amount, colours, is_dense)),
      ),
      details(colours),
      quotas(colours),
    ];
  }

  function overview(amount) {
    const used = nodes.reduce((sum, node) => sum + amount.of(node.held), 0);
    const away = nodes.filter((node) => !node.is_ready && !node.is_draining).length;
    const draining = nodes.filter((node) => node.is_draining).length;
    return h(
      "p",
      { class: "overview muted" },
      [
        share_text(amount, used),
        plural(nodes.length, "node"),
        draining ? `${whole(draining)} drained` : "",
        away ? `${whole(away)} not ready` : "",
      ]
        .filter(Boolean)
        .join(" · "),
    );
  }

  function legend(colours) {
    const has_others = nodes.some((node) => shares_of(node).some((share) => share.team === OTHERS));
    return h(
      "ul",
      { class: "legend" },
      colours.teams.map((team) =>
        h("li", { class: `s${colours.index(team)}`, key: team }, h("span", { class: "swatch" }), team),
      ),
      has_others ? h("li", { class: "others", key: "/" }, h("span", { class: "swatch" }), "other teams") : null,
      h("li", { class: "free", key: "//" }, h("span", { class: "swatch" }), "free"),
    );
  }

  function box(node, amount, colours, is_dense) {
    const count = amount.of(node.capacity);
    const used = amount.of(node.held);
    const trouble = trouble_of(node);
    const is_countable = amount.key.startsWith("accelerator ") && count > 1 && count <= 16;
    const words = count > 0 ? `${amount.text(used)} of ${amount.text(count)} ${amount.title}` : `no ${amount.title}`;
    return h(
      "li",
      { key: node.name },
      h(
        "button",
        {
          type: "button",
          class: `node ${trouble.kind}${count > 0 ? "" : " without"}${chosen === node.name ? " chosen" : ""}`,
          "aria-pressed": String(chosen === node.name),
          "aria-label": `${node.name}: ${words}${trouble.word ? `, ${trouble.word}` : ""}`,
          title: is_dense ? `${node.name}: ${words}${trouble.word ? `, ${trouble.word}` : ""}` : null,
          onclick: () => {
            chosen = chosen === node.name ? null : node.name;
            draw();
          },
        },
        h(
          "span",
          is_countable ? { class: "fill units", style: { "--units": String(count) } } : { class: "fill" },
          count > 0
            ? shares_of(node).map((share) => {
                const part = amount.of(share.held) / count;
                return part > 0
                  ? h("span", {
                      key: share.team,
                      class: share.team === OTHERS ? "part others" : `part s${colours.index(share.team)}`,
                      style: { "flex-basis": `${100 * Math.min(1, part)}%` },
                    })
                  : null;
              })
            : null,
        ),
        is_dense
          ? null
          : [
              h("span", { class: "node-name" }, node.name, trouble.word ? h("em", null, trouble.word) : null),
              h("span", { class: "node-use" }, count > 0 ? [h("b", null, amount.text(used)), ` of ${amount.text(count)}`] : words),
            ],
      ),
    );
  }

  function details(colours) {
    const node = nodes.find((each) => each.name === chosen);
    if (!node) {
      return null;
    }
    const trouble = trouble_of(node);
    const shares = shares_of(node);
    return h(
      "section",
      { class: "node-details", "aria-label": `Node ${node.name}` },
      h(
        "div",
        { class: "section-head" },
        h("h2", null, node.name, trouble.word ? h("span", { class: "tag" }, trouble.word) : null),
        h(
          "div",
          { class: "actions" },
          context.me().is_administrator
            ? h(
                "button",
                { type: "button", onclick: () => drain(node.name, !node.is_draining) },
                node.is_draining ? "Take jobs again" : "Drain",
              )
            : null,
          h("button", { type: "button", onclick: () => ((chosen = null), draw()) }, "Close"),
        ),
      ),
      node.not_ready ? h("p", { class: "reason" }, node.not_ready) : null,
      h(
        "dl",
        { class: "amounts" },
        amounts_of(node.capacity).map((amount) => {
          const used = amount.of(node.held);
          return amount_row(amount, used, meter(used / amount.count, share_text(amount, used)));
        }),
      ),
      shares.some((share) => share.jobs.length > 0)
        ? h(
            "ul",
            { class: "node-jobs" },
            shares.flatMap((share) =>
              share.jobs.map((id) =>
                h(
                  "li",
                  { key: id, class: `s${colours.index(share.team)}` },
                  h("span", { class: "swatch" }),
                  job_link(id),
                  h("span", { class: "muted" }, share.team),
                ),
              ),
            ),
          )
        : h("p", { class: "muted" }, shares.length > 0 ? "Jobs of teams that you do not see." : "No job has a learner here."),
    );
  }

  async function drain(name, is_to_drain) {
    const sure =
      !is_to_drain ||
      (await dialog({
        title: `Drain ${name}?`,
        text: "Its jobs halt with a checkpoint and wait for places elsewhere. It takes no other ones until it is told to.",
        action: "Drain",
      }));
    if (sure) {
      await act(() => ask(`/v1/nodes/${encodeURIComponent(name)}`, { method: "PATCH", body: { drain: is_to_drain } }), poll.now);
    }
  }

  function quotas(colours) {
    if (teams.length === 0) {
      return null;
    }
    return h(
      "section",
      { class: "quotas", "aria-labelledby": "quotas-title" },
      h("h2", { id: "quotas-title" }, "Teams"),
      h(
        "ul",
        null,
        teams.map((team) =>
          h(
            "li",
            { key: team.team },
            h(
              "div",
              { class: `quota-head s${colours.index(team.team)}` },
              h("span", { class: "swatch" }),
              h("strong", null, team.team),
              h("span", { class: "muted" }, `${whole(team.running)} running, ${whole(team.waiting)} waiting`),
            ),
            quota_of(team),
          ),
        ),
      ),
    );
  }

  draw();
  return () => poll.stop();
}

function amount_row(amount, used, bar) {
  return h(
    "div",
    { key: amount.key },
    h("dt", null, amount.title),
    h("dd", null, bar, h("span", null, `${amount.text(used)} of ${amount.text(amount.count)}`)),
  );
}

function quota_of(team) {
  const bounds = amounts_of(team.quota ?? { millicpus: 0, memory_bytes: 0, accelerators: {} });
  const borrowed = amounts_of(team.borrowed ?? { millicpus: 0, memory_bytes: 0, accelerators: {} });
  return h(
    "dl",
    { class: "amounts" },
    bounds.map((amount) => {
      const used = amount.of(team.held);
      const share = used / amount.count;
      const text = `${share_text(amount, used)}: ${percent(share)} of the quota`;
      return amount_row(amount, used, meter(share, text, share > 1 ? "over" : ""));
    }),
    bounds.length === 0
      ? h("p", { class: "muted", key: "none" }, `No quota is set; it holds ${held_words(team.held)}.`)
      : null,
    borrowed.length > 0
      ? h("p", { class: "muted", key: "borrowed" }, `Borrowed beyond it: ${held_words(team.borrowed)}.`)
      : null,
  );
}

function held_words(held) {
  const list = amounts_of(held);
  return list.length > 0 ? list.map((amount) => `${amount.text(amount.count)} ${amount.title}`).join(", ") : "nothing";
}

/** What each team holds of a node; what nobody whom one sees holds is the others'. */
function shares_of(node) {
  const shares = node.shares ?? [];
  const known = total(shares.map((share) => share.held));
  const rest = {
    millicpus: node.held.millicpus - known.millicpus,
    memory_bytes: node.held.memory_bytes - known.memory_bytes,
    accelerators: Object.fromEntries(
      Object.entries(node.held.accelerators).map(([type, count]) => [type, count - (known.accelerators[type] ?? 0)]),
    ),
  };
  const has_rest = rest.millicpus > 0 || rest.memory_bytes > 0 || Object.values(rest.accelerators).some((count) => count > 0);
  return has_rest ? [...shares, { team: OTHERS, held: rest, jobs: [] }] : shares;
}

function trouble_of(node) {
  if (node.is_draining) {
    return { kind: "drained", word: node.held.millicpus > 0 ? "draining" : "drained" };
  }
  return node.is_ready ? { kind: "", word: "" } : { kind: "lost", word: "not ready" };
}
