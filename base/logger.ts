import { pino } from 'pino';

/** Structured logger. `component` names the part that speaks; never pass headers, tokens or NACK texts of secrets. */
export interface Logger {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
  child(fields: object): Logger;
}

/** Logs JSON lines to stderr; the level comes from `SANDGATE_LOG` (`debug`, `info`, `warn`, `error`; default `info`). */
export function createLogger(component: string): Logger {
  const level = process.env['SANDGATE_LOG'] ?? 'info';
  return pino({ level, base: { component }, timestamp: pino.stdTimeFunctions.isoTime }, pino.destination(2));
}

/** A logger that drops everything, for tests and pure callers. */
export const silentLogger: Logger = {
  debug() {},
  info() {},
  warn() {},
  error() {},
  child: () => silentLogger,
};
