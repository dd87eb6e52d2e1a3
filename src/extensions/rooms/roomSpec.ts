/** Reads from the room what a worker's engine needs: config, model sizes, tokenizer, and the weights at the start of the training. */

import { InputError } from '../../errors.ts';
import { parseTrainConfig } from '../yaml/index.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { readSafetensors } from '../../model/checkpoint/safetensors.ts';
import type { ModelConfig } from '../../model/config.ts';
import type { LoraConfig } from '../../model/lora/config.ts';
import { policySizes } from '../../workers/engineSpec.ts';
import type { OpenedRoom } from './joinRoom.ts';

/** Content of the room's file "model", which `webgrpo room` stores. */
interface RoomModel {
  config: ModelConfig;
  tokenizerJson: Record<string, unknown>;
  tokenizerConfigJson: Record<string, unknown>;
  lora?: LoraConfig;
}

/** Returns the room's config, validated like a config file. Throws InputError. */
export const configOfRoom = ({ config }: OpenedRoom, note: (text: string) => void = () => {}): TrainConfig =>
  parseTrainConfig(JSON.stringify(config), { source: "the room's config", overrides: [], note });

/**
 * Returns the key by which a task names files, programs or addresses that a worker's machine would open, otherwise undefined. A task
 * module is the worker's own copy, so its options are left to it.
 */
export function openedKey({ path, valPath, mcpServers, module, options }: TrainConfig['task']): string | undefined {
  const ofShipped = { 'options.module': options['module'], 'options.searchUrl': options['searchUrl'] };
  const named = { path, valPath, mcpServers, ...(module === undefined && ofShipped) };
  const isNamed = (value: unknown) =>
    value !== undefined &&
    value !== '' &&
    (typeof value !== 'object' || value === null || Object.keys(value).length > 0);
  return Object.entries(named).find(([, value]) => isNamed(value))?.[0];
}

/** Throws InputError if the room's task has an `openedKey`. */
export function checkRoomTask(task: TrainConfig['task']): void {
  const refused = openedKey(task);
  if (refused !== undefined)
    throw new InputError(
      `The room's config has task.${refused}, which names files, programs or addresses that this machine would open. The room is not joined.`,
    );
}

/** Returns the model and the sizes for an engine that only generates. */
export async function roomSpec(room: OpenedRoom, config: TrainConfig) {
  const { lora, ...model } = JSON.parse(new TextDecoder().decode(await room.file('model'))) as RoomModel;
  const weights = readSafetensors(await room.file('base'), "the room's weights");
  const { kernelTuning: _, lowerToFit = [], ...asked } = policySizes(config, 'generate');
  const slots = lowerToFit.filter((key) => key === 'rollout.maxNumSeqs'); // the trainer has set the others
  return { model: { ...model, weights }, sizes: { ...asked, lowerToFit: slots, ...(lora && { lora }) } };
}
