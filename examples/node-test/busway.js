// A Busway server for tests: started with the tests, its clock moved by them.

import { spawn } from "node:child_process";
import { createHmac } from "node:crypto";
import { createInterface } from "node:readline";

const COMMAND = process.env.BUSWAY ?? "busway";

export class Busway {
  // `arguments_` go to `busway serve`, for example ["--config", "busway.toml"].
  static async start(arguments_ = []) {
    const options = ["--memory", "--port", "0", "--allow-clock", "--print-connection-string"];
    const process_ = spawn(COMMAND, ["serve", ...options, ...arguments_], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const failed = new Promise((_, reject) => {
      process_.once("error", reject);
      process_.once("exit", (status) => reject(new Error(`${COMMAND} serve ended: ${status}`)));
    });
    failed.catch(() => {}); // it is expected to end, later
    const ready = (async () => {
      let connectionString;
      for await (const line of createInterface({ input: process_.stdout })) {
        if (line.includes("UseDevelopmentEmulator=true")) connectionString ??= line;
        if (line.startsWith("ready")) return connectionString;
      }
    })();
    return new Busway(process_, await Promise.race([ready, failed]));
  }

  constructor(process_, connectionString) {
    this.process = process_;
    this.connectionString = connectionString;
    const part = (name) => connectionString.match(new RegExp(`${name}=([^;]+)`))[1];
    this.url = part("Endpoint").replace(/^sb:/, "http:").replace(/\/$/, "");
    this.rule = part("SharedAccessKeyName");
    this.key = part("SharedAccessKey");
  }

  // Everything that falls due until then is done when this returns: "10m", "1h30m", "14d".
  async advance(span) {
    return await this.request("POST", "/$busway/clock", JSON.stringify({ advance: span }));
  }

  // What time it is for messages: due times are to be given in it, once the clock was moved.
  async now() {
    return new Date((await this.request("GET", "/$busway/clock")).now);
  }

  // No messages, no entities but the configured ones, and the real time again.
  async reset() {
    await this.request("POST", "/$busway/reset", "{}");
  }

  async createQueue(name, properties = {}) {
    const elements = Object.entries(properties).map(([key, value]) => `<${key}>${value}</${key}>`);
    const entry = `<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">
      <QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect">
      ${elements.join("")}</QueueDescription></content></entry>`;
    await this.request("PUT", `/${name}?api-version=2021-05`, entry);
    return name;
  }

  async request(method, path, body) {
    const reply = await fetch(this.url + path, {
      method,
      body,
      headers: { Authorization: this.token(), "Content-Type": "application/json" },
    });
    const text = await reply.text();
    if (!reply.ok) throw new Error(`${method} ${path}: ${reply.status} ${text}`);
    return text.startsWith("{") ? JSON.parse(text) : text;
  }

  token() {
    const resource = encodeURIComponent(`http://${new URL(this.url).hostname}/`);
    const expires = Math.floor(Date.now() / 1000) + 300;
    const signed = createHmac("sha256", this.key).update(`${resource}\n${expires}`).digest("base64");
    return (
      `SharedAccessSignature sr=${resource}&sig=${encodeURIComponent(signed)}` +
      `&se=${expires}&skn=${this.rule}`
    );
  }

  async stop() {
    const ended = new Promise((resolve) => this.process.once("exit", resolve));
    this.process.kill("SIGTERM");
    await ended;
  }
}
