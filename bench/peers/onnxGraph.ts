/** Writes an ONNX graph node by node, without a protobuf library. */

import { bytes, float, int, message, text } from './protobuf.ts';

/** TensorProto.DataType */
export const [FLOAT, INT32, INT64] = [1, 6, 7];
type Dim = number | string;

/** AttributeProto: name = 1, f = 2, i = 3, type = 20. */
export const attribute = {
  float: (name: string, value: number) => message(text(1, name), float(2, value), int(20, 1)),
  /** A negative number takes ten bytes of two's complement; only -1 is needed. */
  int: (name: string, value: number) =>
    message(
      text(1, name),
      value === -1 ? Uint8Array.of(24, ...Array<number>(9).fill(255), 1) : int(3, value),
      int(20, 2),
    ),
};

/** Collects the parts of a GraphProto: node = 1, name = 2, initializer = 5, input = 11, output = 12. */
export class GraphWriter {
  readonly #fields: Uint8Array[] = [];

  node(op: string, inputs: string[], outputs: string[], attributes: Uint8Array[] = [], domain = ''): string[] {
    const names = [...inputs.map((name) => text(1, name)), ...outputs.map((name) => text(2, name))];
    const rest = [text(3, outputs[0]), text(4, op), ...attributes.map((a) => bytes(5, a)), text(7, domain)];
    this.#fields.push(bytes(1, message(...names, ...rest)));
    return outputs;
  }

  constant(name: string, data: Float32Array, shape: number[]): void {
    this.#initializer(name, FLOAT, new Uint8Array(data.buffer, data.byteOffset, data.byteLength), shape);
  }

  indices(name: string, values: number[]): void {
    this.#initializer(name, INT64, new Uint8Array(BigInt64Array.from(values.map(BigInt)).buffer), [values.length]);
  }

  input(name: string, type: number, shape: Dim[]): void {
    this.#fields.push(bytes(11, valueInfo(name, type, shape)));
  }

  output(name: string, shape: Dim[]): void {
    this.#fields.push(bytes(12, valueInfo(name, FLOAT, shape)));
  }

  /** ModelProto: ir_version = 1, graph = 7, opset_import = 8. */
  finish(): Uint8Array {
    const graph = message(...this.#fields, text(2, 'graph'));
    const opset = (domain: string, version: number) => bytes(8, message(text(1, domain), int(2, version)));
    return message(int(1, 9), bytes(7, graph), opset('', 18), opset('com.microsoft', 1));
  }

  /** TensorProto: dims = 1, data_type = 2, name = 8, raw_data = 9. */
  #initializer(name: string, type: number, raw: Uint8Array, shape: number[]): void {
    const dims = shape.map((size) => int(1, size));
    this.#fields.push(bytes(5, message(...dims, int(2, type), text(8, name), bytes(9, raw))));
  }
}

/** ValueInfoProto: name = 1, type = 2; a dimension is a number (1) or a name (2). */
function valueInfo(name: string, type: number, shape: Dim[]): Uint8Array {
  const dims = shape.map((size) => bytes(1, typeof size === 'number' ? int(1, size) : text(2, size)));
  return message(text(1, name), bytes(2, bytes(1, message(int(1, type), bytes(2, message(...dims))))));
}
