import { Counter, Gauge, Histogram, Registry } from 'prom-client';

/** One registry per process; every room registers its metrics here and `status` and the metrics endpoint read it. */
export const registry = new Registry();

/** A counter of this process's registry; asking twice for one name gives the same counter. */
export function counter(name: string, help: string, labelNames: readonly string[] = []): Counter {
  const known = registry.getSingleMetric(name);
  return known instanceof Counter ? known : new Counter({ name, help, labelNames, registers: [registry] });
}

/** A gauge of this process's registry. */
export function gauge(name: string, help: string, labelNames: readonly string[] = []): Gauge {
  const known = registry.getSingleMetric(name);
  return known instanceof Gauge ? known : new Gauge({ name, help, labelNames, registers: [registry] });
}

/** A histogram of this process's registry; `buckets` in the unit that the name ends with. */
export function histogram(
  name: string,
  help: string,
  labelNames: readonly string[],
  buckets: readonly number[],
): Histogram {
  const known = registry.getSingleMetric(name);
  return known instanceof Histogram
    ? known
    : new Histogram({ name, help, labelNames, buckets: [...buckets], registers: [registry] });
}
