// samples.js - figures in Prometheus' text format, as the gateway's /metrics has them.

// One line: name{label="value",...} number. null: a comment, or something else.
function readLine(line) {
  const found = /^([a-zA-Z_:][\w:]*)(\{.*\})? (\S+)/.exec(line);
  if (found === null) return null;
  const labels = {};
  for (const [, name, value] of (found[2] ?? "").matchAll(/([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g))
    labels[name] = value.replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c));
  return { name: found[1].replace(/^(lockstep_|vllm:)/, ""), labels, value: Number(found[3]) };
}

const fits = (labels, wanted) => Object.entries(wanted).every(([name, value]) => labels[name] === value);

// All figures of one moment (milliseconds). Names stand without their program's prefix.
export class Samples {
  constructor(text, at) {
    this.at = at;
    this.byName = new Map();
    for (const sample of text.split("\n").map(readLine)) {
      if (sample === null) continue;
      if (!this.byName.has(sample.name)) this.byName.set(sample.name, []);
      this.byName.get(sample.name).push(sample);
    }
  }

  all(name, labels = {}) {
    return (this.byName.get(name) ?? []).filter((sample) => fits(sample.labels, labels));
  }

  // The values of a label that figures of this name have, in their order.
  values(name, label) {
    return [...new Set(this.all(name).map((sample) => sample.labels[label]))].filter((value) => value !== undefined);
  }

  // NaN: there is none.
  sum(name, labels = {}) {
    const found = this.all(name, labels);
    return found.length === 0 ? NaN : found.reduce((sum, sample) => sum + sample.value, 0);
  }

  mean(name, labels = {}) {
    return this.sum(name, labels) / this.all(name, labels).length;
  }

  // How much a counter has grown since `before`; NaN: not known, or it was begun anew.
  growth(before, name, labels = {}) {
    const grown = this.sum(name, labels) - (before?.sum(name, labels) ?? NaN);
    return grown >= 0 ? grown : NaN;
  }

  // A second.
  rate(before, name, labels = {}) {
    return this.growth(before, name, labels) / ((this.at - before?.at) / 1000);
  }

  // Of what a histogram was told since `before`; NaN: nothing.
  meanSince(before, name, labels = {}) {
    const count = this.growth(before, `${name}_count`, labels);
    return count > 0 ? this.growth(before, `${name}_sum`, labels) / count : NaN;
  }
}
