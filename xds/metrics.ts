import { counter, gauge, histogram } from '../base/metrics.ts';

/** Streams that are open now. */
export const clientsGauge = gauge('sandgate_xds_clients', 'Open xDS streams');

export const publicationsTotal = counter('sandgate_xds_publications_total', 'Views published');

export const responsesTotal = counter('sandgate_xds_responses_total', 'xDS responses sent', ['type']);

/** `kind`: `sent` or `removed`. */
export const resourcesTotal = counter('sandgate_xds_resources_total', 'xDS resources in responses', ['type', 'kind']);

export const rejectionsTotal = counter('sandgate_xds_rejections_total', 'Resources that a client refused', ['type']);

export const refusedCallersTotal = counter('sandgate_xds_refused_callers_total', 'Streams refused by identity', [
  'reason',
]);

/** From a publication until one caller has acknowledged all of it. */
export const settleSeconds = histogram(
  'sandgate_xds_settle_seconds',
  'Time from publication to acknowledgement by a caller',
  [],
  [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30],
);
