/**
 * gRPC services of Envoy's API. Their messages are plain objects: keys in camelCase, bytes as Buffer, enums as their
 * names, 64-bit numbers as decimal strings, maps as objects; an unset message or scalar is absent, an unset list or
 * map is empty, and the virtual member of a oneof names the member that is set. A misspelt key is dropped in silence
 * by this codec (resources are not encoded by it), so build messages in one typed place.
 */
import type { ServiceDefinition } from '@grpc/grpc-js';
import { fromJSON } from '@grpc/proto-loader';
import { Root } from 'protobufjs/light.js';
import 'protobufjs/ext/descriptor.js';
import { CodedError } from '../base/errors.ts';
import { descriptorBytes, fileOfType, importClosure } from './descriptor-files.ts';
import { framedFiles } from './wire.ts';

const built = new Map<string, ServiceDefinition>();

/** The definition of a service, such as `envoy.service.ext_proc.v3.ExternalProcessor`; throws `unknown-type`. */
export function service(fullName: string): ServiceDefinition {
  const known = built.get(fullName) ?? buildService(fullName);
  built.set(fullName, known);
  return known;
}

/**
 * By way of the JSON form, because loading a descriptor set directly turns every map into a list of entries; from the
 * service's own imports only, because a process needs one or two services.
 */
function buildService(fullName: string): ServiceDefinition {
  const files = importClosure([fileOfType(fullName)]).map(descriptorBytes);
  const root = Root.fromDescriptor(framedFiles(files));
  const definitions = fromJSON(root.resolveAll().toJSON(), {
    keepCase: true,
    longs: String,
    enums: String,
    oneofs: true,
    arrays: true,
    objects: true,
  });
  const found = definitions[fullName];
  if (found === undefined || 'format' in found) {
    throw new CodedError('unknown-type', `Envoy 1.40 has no service ${fullName}`);
  }
  return found as ServiceDefinition;
}
