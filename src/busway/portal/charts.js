// Small charts in SVG: a line in a table row, and lines over the last minutes.
import { h, svg } from "./dom.js";

export function sparkline(values, label) {
  const width = 72,
    height = 22;
  const most = values.reduce((most, value) => Math.max(most, value), 1);
  const points = values.map(
    (value, i) =>
      `${((i + 1) / Math.max(values.length, 2)) * width},${height - 2 - (value / most) * (height - 4)}`,
  );
  return svg(
    "svg",
    { class: "spark", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label },
    values.length > 1 && svg("polyline", { points: points.join(" ") }),
  );
}

// `lines`: [{ name, css, values }] of the same length; `seconds` is the time that they span.
export function chart(title, lines, write, seconds) {
  const width = 420,
    height = 120,
    left = 4,
    bottom = 16;
  const values = lines.flatMap((line) => line.values).filter((value) => value !== null);
  const most = niceAbove(Math.max(0, ...values));
  const length = Math.max(2, ...lines.map((line) => line.values.length));
  const x = (i) => left + (i / (length - 1)) * (width - 2 * left);
  const y = (value) => height - bottom - (value / most) * (height - bottom - 8);
  const told = lines.map((line) => `${line.name} ${write(line.values.at(-1) ?? null)}`).join(", ");
  return h(
    "figure",
    { class: "chart" },
    h(
      "figcaption",
      {},
      title,
      h(
        "span",
        { class: "legend" },
        lines.map((line) =>
          h("span", { class: line.css }, `${line.name} `, h("b", {}, write(line.values.at(-1) ?? null))),
        ),
      ),
    ),
    svg(
      "svg",
      {
        viewBox: `0 0 ${width} ${height}`,
        role: "img",
        "aria-label": `${title}: ${told}`,
        preserveAspectRatio: "none",
      },
      [0, 0.5, 1].map((part) =>
        svg("line", { class: "grid", x1: left, x2: width - left, y1: y(part * most), y2: y(part * most) }),
      ),
      lines.map(
        (line) =>
          line.values.length > 1 &&
          svg("polyline", {
            class: line.css,
            points: line.values
              .map((value, i) =>
                value === null ? null : `${x(i + length - line.values.length)},${y(value)}`,
              )
              .filter(Boolean)
              .join(" "),
          }),
      ),
    ),
    h(
      "div",
      { class: "scale" },
      h("span", {}, `${Math.round(seconds)} s ago`),
      h("span", {}, `up to ${write(most)}`),
      h("span", {}, "now"),
    ),
  );
}

function niceAbove(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
}
