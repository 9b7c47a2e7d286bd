// Requests to the server. The token is kept for this tab alone and travels in the Authorization header, never in an
// address. Whether the server is there is known to all: `connection`.

const TOKEN = "tesser-token";
const ANSWER_SECONDS = 15; // beside what a request asks the server to wait

/** The server refused: `status`, `code` and its words. */
export class Refused extends Error {
  constructor(status, code, message, retry_after) {
    super(message);
    this.status = status;
    this.code = code;
    this.retry_after = retry_after; // seconds; 0: it did not say
  }
}

/** Nobody answered. */
export class Away extends Error {}

class Connection extends EventTarget {
  is_away = false;
  since = null;

  found() {
    if (this.is_away) {
      this.is_away = false;
      this.dispatchEvent(new Event("back"));
      this.dispatchEvent(new Event("change"));
    }
  }

  lost() {
    if (!this.is_away) {
      this.is_away = true;
      this.since = new Date();
      this.dispatchEvent(new Event("change"));
    }
  }
}

export const connection = new Connection();

export const session = new (class extends EventTarget {
  get token() {
    return sessionStorage.getItem(TOKEN) ?? "";
  }
  begin(token) {
    sessionStorage.setItem(TOKEN, token);
    this.dispatchEvent(new Event("change"));
  }
  end(why = "") {
    if (this.token) {
      sessionStorage.removeItem(TOKEN);
      this.why = why;
      known.clear();
      this.dispatchEvent(new Event("change"));
    }
  }
  why = "";
})();

const known = new Map(); // by address: the last answer and its tag
const MOST_KNOWN = 60;

function address(path, query) {
  const parameters = new URLSearchParams();
  for (const [name, given] of Object.entries(query ?? {})) {
    if (given !== undefined && given !== null && given !== "") {
      parameters.set(name, given);
    }
  }
  const text = parameters.toString();
  return text ? `${path}?${text}` : path;
}

/** The path of a job, or of what belongs to it. */
export const job_path = (id, rest = "") => `/v1/jobs/${encodeURIComponent(id)}${rest}`;

/**
 * Asks and gives the answer's JSON. An answer that is the same as the last one to this address is the same object.
 * Throws Refused, Away, or what `signal` says.
 */
export async function ask(path, { method = "GET", query, body, signal, token = session.token } = {}) {
  const url = address(path, query);
  const headers = { Accept: "application/json" };
  if (token) {
    headers.Authorization = `Bearer ${token}`;
  }
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
  }
  const remembers = method === "GET" && !query?.wait;
  const before = remembers ? known.get(url) : undefined;
  if (before) {
    headers["If-None-Match"] = before.tag;
  }
  const response = await send(url, {
    method,
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    signal,
    seconds: ANSWER_SECONDS + Number(query?.wait ?? 0),
  });
  if (response.status === 304 && before) {
    return before.answer;
  }
  const answer = await json_of(response);
  if (!response.ok) {
    throw refusal(response, answer, token);
  }
  const tag = response.headers.get("ETag");
  if (remembers && tag) {
    known.delete(url);
    known.set(url, { tag, answer });
    if (known.size > MOST_KNOWN) {
      known.delete(known.keys().next().value);
    }
  }
  return answer;
}

async function send(url, { seconds, signal, ...options }) {
  const limit = AbortSignal.timeout(seconds * 1000);
  try {
    const response = await fetch(url, {
      ...options,
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
    });
    connection.found();
    return response;
  } catch (error) {
    signal?.throwIfAborted();
    connection.lost();
    throw new Away("the server does not answer", { cause: error });
  }
}

async function json_of(response) {
  try {
    return await response.json();
  } catch {
    if (response.ok) {
      throw new Away("the answer was cut short");
    }
    return null; // of something between the server and here
  }
}

function refusal(response, answer, token) {
  const code = answer?.error?.code ?? "";
  const words = answer?.error?.message ?? `the server answers ${response.status} ${response.statusText}`;
  if (response.status === 401 && token === session.token) {
    session.end("The server does not know this token any more. Log in again.");
  }
  return new Refused(response.status, code, words, Number(response.headers.get("Retry-After")) || 0);
}

/**
 * Downloads what is too large for an answer in JSON, and hands it to the browser to keep. `progress` hears the bytes
 * that have come.
 */
export async function download(path, name, { progress, signal }) {
  const response = await fetch(path, {
    headers: { Authorization: `Bearer ${session.token}` },
    cache: "no-store",
    credentials: "omit",
    signal,
  }).catch((error) => {
    signal?.throwIfAborted();
    throw new Away("the server does not answer", { cause: error });
  });
  if (!response.ok) {
    throw refusal(response, await json_of(response), session.token);
  }
  let count = 0;
  const counted = response.body.pipeThrough(
    new TransformStream({
      transform(piece, to) {
        count += piece.byteLength;
        progress?.(count);
        to.enqueue(piece);
      },
    }),
  );
  const content = await new Response(counted).blob().catch((error) => {
    signal?.throwIfAborted();
    throw new Away("the download broke off", { cause: error });
  });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  return count;
}
