// The forms in which a body can be read: text, JSON, XML, bytes. Each is text for a <pre>; XML is parsed
// to be indented and never becomes part of the page.
import { hexOf } from "./format.js";

const HEX_BYTES = 64 * 1024;
const PRETTY_CHARS = 1024 * 1024;

// By name, as functions: a form is made when somebody chooses it.
export function formsOf(text, bytes, isCut) {
  const forms = {};
  if (text !== null) {
    forms.Text = () => text;
    const isPretty = !isCut && text.length <= PRETTY_CHARS;
    const json = isPretty ? parsedJson(text) : undefined;
    if (json !== undefined) forms.JSON = () => JSON.stringify(json, null, 2);
    const xml = isPretty ? parsedXml(text) : null;
    if (xml) forms.XML = () => indented(xml.documentElement, 0);
  }
  const isLong = bytes.length > HEX_BYTES;
  forms.Hex = () => hexOf(bytes.subarray(0, HEX_BYTES)) + (isLong ? "\n… the rest is in the download" : "");
  return forms;
}

function parsedJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // it is no JSON, so that form is not offered
  }
}

function parsedXml(text) {
  if (!/^\s*</.test(text)) return null;
  const xml = new DOMParser().parseFromString(text, "application/xml");
  return xml.querySelector("parsererror") ? null : xml;
}

function indented(node, depth) {
  const pad = "  ".repeat(depth);
  const attributes = [...node.attributes].map((each) => ` ${each.name}="${each.value}"`).join("");
  const children = [...node.children];
  if (children.length === 0)
    return `${pad}<${node.nodeName}${attributes}>${node.textContent}</${node.nodeName}>`;
  return [
    `${pad}<${node.nodeName}${attributes}>`,
    ...children.map((child) => indented(child, depth + 1)),
    `${pad}</${node.nodeName}>`,
  ].join("\n");
}
