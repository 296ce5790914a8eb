// Requests to the HTTP API of the server. Each request sends the token, which came in the fragment of the URL.

const STORED = "ctxlab-token";
let token = null;
let onRefused = () => {};

export class ApiError extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

// Take the token from the fragment and remove it from the address bar. The token is kept until the tab is closed.
export function takeToken() {
  const given = location.hash.match(/^#token=([^&/]*)/);
  if (given) {
    history.replaceState(null, "", `${location.pathname}#/`);
    setToken(decode(given[1]));
  } else if (token === null) {
    try { token = sessionStorage.getItem(STORED); } catch { /* the browser stores nothing */ }
  }
  return token !== null;
}

// Call a function when the server refuses the token, which is then forgotten.
export function whenRefused(action) {
  onRefused = action;
}

function setToken(value) {
  // Other characters cannot be sent in a header.
  token = value !== null && /^[!-~]+$/.test(value) ? value : null;
  try {
    if (token === null) sessionStorage.removeItem(STORED);
    else sessionStorage.setItem(STORED, token);
  } catch { /* the browser stores nothing */ }
}

function decode(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

export function sessionPath(id) {
  return `/api/v1/sessions/${encodeURIComponent(id)}`;
}

// Return the JSON that the server answers. Raise ApiError if it refuses.
export async function get(path, query = {}, signal = undefined) {
  const url = new URL(path, location.origin);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null) url.searchParams.set(name, value);
  }
  let response;
  try {
    response = await fetch(url, {
      headers: { Authorization: `Bearer ${token}` }, cache: "no-store", credentials: "omit", redirect: "error", signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server does not answer. Check that ctxlab serve http is running, then reload the page.");
  }
  if (response.status === 401) {
    setToken(null);
    onRefused();
  }
  const answer = await response.json().catch((error) => {
    if (error.name === "AbortError") throw error;
    return {};
  });
  if (!response.ok) throw new ApiError(response.status, answer.detail ?? `The server answered with status ${response.status}.`);
  return answer;
}
