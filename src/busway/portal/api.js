// The server's public HTTP interface, with the key of the person who signed in. The key is kept in
// this tab alone (sessionStorage), and each request carries a signature made from it in a header.
import { hmac } from "./signing.js";

const STORED = "busway.key";
const LASTS_S = 600;
const ATOM = "http://www.w3.org/2005/Atom";
const SERVICE = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect";
const INSTANCE = "http://www.w3.org/2001/XMLSchema-instance";
const VERSION = "api-version=2021-05";

export class ApiError extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

let signedIn = JSON.parse(sessionStorage.getItem(STORED) || "null");
let token = null;

export const isSignedIn = () => signedIn !== null;
export const signedInAs = () => signedIn?.name;
export const ownEntity = () => signedIn?.entity || null;

export function signIn(text) {
  const wanted = { name: "RootManageSharedAccessKey", key: text.trim(), entity: null };
  if (text.includes("=") && /SharedAccessKey\s*=/i.test(text)) {
    const fields = Object.fromEntries(
      text
        .trim()
        .split(";")
        .filter(Boolean)
        .map((part) => {
          const at = part.indexOf("=");
          return [part.slice(0, at).trim().toLowerCase(), part.slice(at + 1).trim()];
        }),
    );
    wanted.name = fields.sharedaccesskeyname || wanted.name;
    wanted.key = fields.sharedaccesskey;
    wanted.entity = fields.entitypath || null;
  }
  if (!wanted.key)
    throw new Error("That has no key. Paste a connection string, or the key of RootManageSharedAccessKey.");
  signedIn = wanted;
  token = null;
  sessionStorage.setItem(STORED, JSON.stringify(wanted));
}

export function signOut() {
  sessionStorage.removeItem(STORED);
  signedIn = null;
  token = null;
}

// After the key in use was renewed.
export function keepKey(key) {
  signIn(`SharedAccessKeyName=${signedIn.name};SharedAccessKey=${key}`);
}

export const usedKey = () => signedIn?.key;

async function authorization() {
  const now = Math.floor(Date.now() / 1000);
  if (token === null || token.expires < now + 60) {
    const path = signedIn.entity ? encodeURI(signedIn.entity) : "";
    const resource = encodeURIComponent(`${location.origin}/${path}`);
    const expires = now + LASTS_S;
    const signature = encodeURIComponent(await hmac(signedIn.key, `${resource}\n${expires}`));
    const name = encodeURIComponent(signedIn.name);
    token = {
      expires,
      text: `SharedAccessSignature sr=${resource}&sig=${signature}&se=${expires}&skn=${name}`,
    };
  }
  return token.text;
}

export async function request(method, path, { body = null, headers = {} } = {}) {
  let reply;
  try {
    reply = await fetch(path, {
      method,
      body,
      headers: { ...headers, Authorization: await authorization() },
      redirect: "error",
      cache: "no-store",
      credentials: "omit",
    });
  } catch {
    throw new ApiError(0, "The server cannot be reached. Is it running?");
  }
  if (reply.ok) return reply;
  const text = await reply.text();
  const detail =
    new DOMParser().parseFromString(text, "application/xml").querySelector("Detail")?.textContent || text;
  const plain = detail
    .replace(/^SubCode=\d+\.\s*/, "")
    .replace(/\s*(To know more visit|TrackingId:)[\s\S]*$/, "");
  throw new ApiError(reply.status, plain || `The server answered ${reply.status}.`);
}

export async function get(path) {
  return (await request("GET", path)).json();
}

export async function send(method, path, value) {
  const reply = await request(method, path, {
    body: value === undefined ? null : JSON.stringify(value),
    headers: { "Content-Type": "application/json" },
  });
  const text = await reply.text();
  return text ? JSON.parse(text) : null;
}

export const pathOf = (entity) => `/${entity.split("/").map(encodeURIComponent).join("/")}`;

// --- Messages -----------------------------------------------------------------------------------

export const SUB_QUEUES = {
  main: "",
  "dead-letter": "/$DeadLetterQueue",
  transfer: "/$Transfer",
  "transfer-dead-letter": "/$Transfer/$DeadLetterQueue",
};

export const explorer = (entity, queue = "main") => `${pathOf(entity)}${SUB_QUEUES[queue]}/$explorer`;

export async function sendMessage(entity, { body, contentType, broker, properties }) {
  const headers = { BrokerProperties: ascii(broker) };
  if (contentType) headers["Content-Type"] = contentType;
  if (Object.keys(properties).length) headers.BuswayProperties = ascii(properties);
  await request("POST", `${pathOf(entity)}/messages`, { body, headers });
}

// Headers are ASCII: everything else is written as JSON escapes.
function ascii(value) {
  return JSON.stringify(value).replace(
    /[\u007f-\uffff]/g,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

// The next message, locked; null if there is none.
export async function receive(entity, queue) {
  const reply = await request("POST", `${pathOf(entity)}${SUB_QUEUES[queue]}/messages/head?timeout=0`);
  if (reply.status === 204) return null;
  const broker = JSON.parse(reply.headers.get("BrokerProperties"));
  return {
    number: broker.SequenceNumber,
    token: broker.LockToken,
    until: broker.LockedUntilUtc,
    id: broker.MessageId,
  };
}

export const settle = (entity, queue, lockToken, settlement, reason, description) =>
  send("POST", `${explorer(entity, queue)}/messages/settle`, {
    lock_token: lockToken,
    settlement,
    reason,
    description,
  });

// --- Entities: Atom -----------------------------------------------------------------------------

const element = (name, value) => `<${name}>${escaped(String(value))}</${name}>`;
const escaped = (text) =>
  text.replace(/[&<>"]/g, (char) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[char]);

const entry = (description) =>
  `<entry xmlns="${ATOM}"><content type="application/xml">${description}</content></entry>`;

export async function createEntity(kind, path, settings) {
  const inner = Object.entries(settings)
    .filter(([, value]) => value !== null && value !== "")
    .map(([name, value]) => element(name, value))
    .join("");
  const body = entry(
    `<${kind}Description xmlns="${SERVICE}" xmlns:i="${INSTANCE}">${inner}</${kind}Description>`,
  );
  await request("PUT", `${path}?${VERSION}`, { body, headers: { "Content-Type": "application/atom+xml" } });
}

export async function readEntity(path) {
  const text = await (await request("GET", `${path}?${VERSION}`)).text();
  const xml = new DOMParser().parseFromString(text, "application/xml");
  const description = [...xml.getElementsByTagNameNS(SERVICE, "*")].find((each) =>
    each.localName.endsWith("Description"),
  );
  if (!description) throw new ApiError(404, "That entity does not exist.");
  return {
    xml,
    description,
    value: (name) => description.getElementsByTagNameNS(SERVICE, name)[0]?.textContent ?? null,
  };
}

export async function updateEntity(path, changes) {
  const { description } = await readEntity(path);
  for (const [name, value] of Object.entries(changes)) {
    let child = [...description.children].find((each) => each.localName === name);
    if (value === null) {
      child?.remove();
      continue;
    }
    if (!child) {
      child = description.ownerDocument.createElementNS(SERVICE, name);
      description.append(child);
    }
    child.textContent = value;
  }
  const body = entry(new XMLSerializer().serializeToString(description));
  await request("PUT", `${path}?${VERSION}`, {
    body,
    headers: { "Content-Type": "application/atom+xml", "If-Match": "*" },
  });
}

export const deleteEntity = (path) => request("DELETE", `${path}?${VERSION}`);

export async function readRules(path) {
  const text = await (await request("GET", `${path}/Rules?${VERSION}&$top=100`)).text();
  const xml = new DOMParser().parseFromString(text, "application/xml");
  return [...xml.getElementsByTagNameNS(SERVICE, "RuleDescription")].map((rule) => {
    const filter = rule.getElementsByTagNameNS(SERVICE, "Filter")[0];
    const action = rule.getElementsByTagNameNS(SERVICE, "Action")[0];
    const type = filter?.getAttributeNS(INSTANCE, "type") || "TrueFilter";
    const sql = filter?.getElementsByTagNameNS(SERVICE, "SqlExpression")[0]?.textContent;
    const conditions =
      type === "CorrelationFilter"
        ? [...filter.children]
            .filter((each) => each.localName !== "Properties" && each.textContent)
            .map((each) => `${each.localName} = '${each.textContent}'`)
        : [];
    for (const pair of filter?.getElementsByTagNameNS(SERVICE, "KeyValueOfstringanyType") || []) {
      conditions.push(
        `${pair.getElementsByTagNameNS(SERVICE, "Key")[0]?.textContent} = ${pair.getElementsByTagNameNS(SERVICE, "Value")[0]?.textContent}`,
      );
    }
    return {
      name: rule.getElementsByTagNameNS(SERVICE, "Name")[0].textContent,
      type,
      filter: sql || conditions.join(" AND "),
      action: action?.getElementsByTagNameNS(SERVICE, "SqlExpression")[0]?.textContent || null,
    };
  });
}

export async function createRule(path, name, sql, action) {
  const filter = `<Filter i:type="SqlFilter">${element("SqlExpression", sql)}<CompatibilityLevel>20</CompatibilityLevel></Filter>`;
  const acts = action
    ? `<Action i:type="SqlRuleAction">${element("SqlExpression", action)}<CompatibilityLevel>20</CompatibilityLevel></Action>`
    : `<Action i:type="EmptyRuleAction"/>`;
  const body = entry(
    `<RuleDescription xmlns="${SERVICE}" xmlns:i="${INSTANCE}">${filter}${acts}${element("Name", name)}</RuleDescription>`,
  );
  await request("PUT", `${path}/Rules/${encodeURIComponent(name)}?${VERSION}`, {
    body,
    headers: { "Content-Type": "application/atom+xml" },
  });
}

export const deleteRule = (path, name) =>
  request("DELETE", `${path}/Rules/${encodeURIComponent(name)}?${VERSION}`);
