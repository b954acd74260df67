/** `envoy.service.discovery.v3.DeltaDiscoveryRequest` as the codec gives it; absent lists and maps count as empty. */
export interface DeltaRequest {
  readonly typeUrl?: string;
  readonly resourceNamesSubscribe?: readonly string[];
  readonly resourceNamesUnsubscribe?: readonly string[];
  readonly initialResourceVersions?: Readonly<Record<string, string>>;
  readonly responseNonce?: string;
  readonly errorDetail?: { readonly code?: number; readonly message?: string } | null;
}

/** `envoy.service.discovery.v3.Resource`. */
export interface DeltaResource {
  readonly name: string;
  readonly version: string;
  readonly resource: { readonly typeUrl: string; readonly value: Uint8Array };
}

/** `envoy.service.discovery.v3.DeltaDiscoveryResponse`. */
export interface DeltaResponse {
  readonly typeUrl: string;
  readonly nonce: string;
  readonly resources: readonly DeltaResource[];
  readonly removedResources: readonly string[];
}
