/** What the ingress gateway's resources and the external processor name alike; the latter makes no resource. */

/** Metadata namespace of routes and of the processor's answers, read by the access log. */
export const METADATA_NAMESPACE = 'sandgate';
