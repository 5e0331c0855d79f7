// Two things that draw: on a canvas, and as the text of an SVG file. Both have the same functions.

// parallel/drawing/palette.h: colours that people with any colour vision can tell apart, by operation.
export const FILLS = ["#56b4e9", "#e69f00", "#e69f00", "#f0e442", "#009e73"];
export const LIGHT_FILLS = ["#a9d7f3", "#f4cf80", "#f4cf80", "#f8f2a8", "#7fceb9"]; // every other chunk or version
export const RED = "#d53a1e";
const FONT = "system-ui, 'Liberation Sans', sans-serif";

export function themeOf(element) {
  const style = getComputedStyle(element);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  return { text: colour("text"), quiet: colour("quiet"), line: colour("line"), idle: colour("idle"), accent: colour("accent"), ground: colour("card") };
}

export class CanvasPainter {
  constructor(canvas, width, height) {
    const scale = globalThis.devicePixelRatio || 1;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = `${height}px`;
    this.context = canvas.getContext("2d");
    this.context.scale(scale, scale);
  }
  // One that adds to what is on the canvas.
  static over(canvas) {
    const painter = Object.create(CanvasPainter.prototype);
    painter.context = canvas.getContext("2d");
    return painter;
  }
  rect(x, y, width, height, fill) {
    this.context.fillStyle = fill;
    this.context.fillRect(x, y, width, height);
  }
  frame(x, y, width, height, stroke, dash = []) {
    this.context.strokeStyle = stroke;
    this.context.lineWidth = 2;
    this.context.setLineDash(dash);
    this.context.strokeRect(x, y, width, height);
    this.context.setLineDash([]);
  }
  text(x, y, text, fill, { size = 12, anchor = "start", weight = 400 } = {}) {
    this.context.font = `${weight} ${size}px ${FONT}`;
    this.context.textAlign = anchor === "middle" ? "center" : anchor;
    this.context.fillStyle = fill;
    this.context.fillText(text, x, y);
  }
  line(points, stroke, { width = 1, arrow = false, dash = [] } = {}) {
    const { context } = this;
    context.strokeStyle = stroke;
    context.lineWidth = width;
    context.setLineDash(dash);
    context.beginPath();
    points.forEach(([x, y], i) => (i === 0 ? context.moveTo(x, y) : context.lineTo(x, y)));
    context.stroke();
    context.setLineDash([]);
    if (arrow) this.area(head(points, width), stroke);
  }
  area(points, fill) {
    this.context.fillStyle = fill;
    this.context.beginPath();
    points.forEach(([x, y], i) => (i === 0 ? this.context.moveTo(x, y) : this.context.lineTo(x, y)));
    this.context.fill();
  }
}

export class SvgPainter {
  constructor() {
    this.parts = [];
  }
  rect(x, y, width, height, fill) {
    this.parts.push(`<rect x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(height)}" fill="${fill}"/>`);
  }
  frame(x, y, width, height, stroke, dash = []) {
    const lines = dash.length ? ` stroke-dasharray="${dash.join(" ")}"` : "";
    this.parts.push(`<rect x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(height)}" fill="none" stroke="${stroke}" stroke-width="2"${lines}/>`);
  }
  text(x, y, text, fill, { size = 12, anchor = "start", weight = 400 } = {}) {
    const escaped = String(text).replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`);
    this.parts.push(`<text x="${short(x)}" y="${short(y)}" fill="${fill}" font-size="${size}" font-weight="${weight}" text-anchor="${anchor}">${escaped}</text>`);
  }
  line(points, stroke, { width = 1, arrow = false, dash = [] } = {}) {
    const lines = dash.length ? ` stroke-dasharray="${dash.join(" ")}"` : "";
    this.parts.push(`<polyline points="${pairs(points)}" fill="none" stroke="${stroke}" stroke-width="${width}"${lines}/>`);
    if (arrow) this.area(head(points, width), stroke);
  }
  // What `draw` adds is moved by x and y.
  inside(x, y, draw) {
    this.parts.push(`<g transform="translate(${x} ${y})">`);
    draw();
    this.parts.push("</g>");
  }
  area(points, fill) {
    this.parts.push(`<polygon points="${pairs(points)}" fill="${fill}"/>`);
  }
  file(width, height, ground) {
    return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" font-family="${FONT.replaceAll('"', "'")}"><rect width="100%" height="100%" fill="${ground}"/>${this.parts.join("\n")}</svg>\n`;
  }
}

const short = (number) => String(Math.round(number * 100) / 100);
const pairs = (points) => points.map(([x, y]) => `${short(x)},${short(y)}`).join(" ");

// The corners of an arrow's head at the end of a line.
function head(points, width) {
  const [[x0, y0], [x1, y1]] = points.slice(-2);
  const length = Math.hypot(x1 - x0, y1 - y0) || 1;
  const [dx, dy] = [(x1 - x0) / length, (y1 - y0) / length];
  const size = 4 + 1.5 * width;
  return [[x1, y1], [x1 - size * dx - 0.45 * size * dy, y1 - size * dy + 0.45 * size * dx], [x1 - size * dx + 0.45 * size * dy, y1 - size * dy - 0.45 * size * dx]]; // prettier-ignore
}

// Returns about `count` round numbers from 0 to `end`.
export function ticks(end, count = 8) {
  const rough = Math.max(end, 1e-9) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  return Array.from({ length: Math.floor(end / step + 1e-9) + 1 }, (_, i) => Number((i * step).toPrecision(12)));
}

export const number = (value, digits = 4) => String(Number(value.toPrecision(digits)));
export const percent = (share) => `${(100 * share).toFixed(1)}%`;
