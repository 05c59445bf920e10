// Queues, topics, subscriptions and rules, in the Atom form in which the service manages them.
import { ApiError, request } from "./api.js";

const ATOM = "http://www.w3.org/2005/Atom";
const SERVICE = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect";
const INSTANCE = "http://www.w3.org/2001/XMLSchema-instance";
const VERSION = "api-version=2021-05";

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
  return [...xml.getElementsByTagNameNS(SERVICE, "RuleDescription")].map(ruleOf);
}

function ruleOf(rule) {
  const first = (element, name) => element?.getElementsByTagNameNS(SERVICE, name)[0];
  const filter = first(rule, "Filter");
  const type = filter?.getAttributeNS(INSTANCE, "type") || "TrueFilter";
  const sql = first(filter, "SqlExpression")?.textContent ?? null;
  const conditions = {};
  const properties = {};
  if (type === "CorrelationFilter") {
    for (const each of filter.children)
      if (each.localName !== "Properties" && each.textContent) conditions[each.localName] = each.textContent;
    for (const pair of filter.getElementsByTagNameNS(SERVICE, "KeyValueOfstringanyType"))
      properties[first(pair, "Key").textContent] = valueOf(first(pair, "Value"));
  }
  const equal = Object.entries({ ...conditions, ...properties }).map(
    ([name, value]) => `${name} = ${typeof value === "string" ? `'${value}'` : value}`,
  );
  return {
    name: first(rule, "Name").textContent,
    type,
    sql,
    conditions,
    properties,
    filter: sql || equal.join(" AND ") || "1=1",
    action: first(first(rule, "Action"), "SqlExpression")?.textContent || null,
  };
}

function valueOf(element) {
  const type = (element.getAttributeNS(INSTANCE, "type") || "").split(":").at(-1);
  if (type === "boolean") return element.textContent === "true";
  return ["int", "long", "double", "decimal"].includes(type)
    ? Number(element.textContent)
    : element.textContent;
}

const XSD = "http://www.w3.org/2001/XMLSchema";

function correlation({ properties, ...conditions }) {
  const pairs = Object.entries(properties).map(
    ([name, value]) =>
      `<KeyValueOfstringanyType>${element("Key", name)}<Value i:type="x:${xsdType(value)}" xmlns:x="${XSD}">${escaped(String(value))}</Value></KeyValueOfstringanyType>`,
  );
  const fields = Object.entries(conditions)
    .filter(([, value]) => value)
    .map(([name, value]) => element(name, value));
  return `<Filter i:type="CorrelationFilter">${fields.join("")}<Properties>${pairs.join("")}</Properties></Filter>`;
}

function xsdType(value) {
  if (typeof value === "boolean") return "boolean";
  if (typeof value !== "number") return "string";
  return Number.isInteger(value) ? "long" : "double";
}

// `filter` is { sql } or { correlation: {CorrelationId, Label, ..., properties} }. With `replaces` a rule
// of that name is changed.
export async function putRule(path, name, wanted, action, replaces = false) {
  const filter = wanted.correlation
    ? correlation(wanted.correlation)
    : `<Filter i:type="SqlFilter">${element("SqlExpression", wanted.sql)}<CompatibilityLevel>20</CompatibilityLevel></Filter>`;
  const acts = action
    ? `<Action i:type="SqlRuleAction">${element("SqlExpression", action)}<CompatibilityLevel>20</CompatibilityLevel></Action>`
    : `<Action i:type="EmptyRuleAction"/>`;
  const body = entry(
    `<RuleDescription xmlns="${SERVICE}" xmlns:i="${INSTANCE}">${filter}${acts}${element("Name", name)}</RuleDescription>`,
  );
  await request("PUT", `${path}/Rules/${encodeURIComponent(name)}?${VERSION}`, {
    body,
    headers: { "Content-Type": "application/atom+xml", ...(replaces && { "If-Match": "*" }) },
  });
}

export const deleteRule = (path, name) =>
  request("DELETE", `${path}/Rules/${encodeURIComponent(name)}?${VERSION}`);
