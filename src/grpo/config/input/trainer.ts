/** `trainer` of a training run, as a user writes it. Printed from the schema by test/printedInputs.ts. */

export interface TrainerInput {
  /** Rollout batches to train on. Allowed: integer >= 0 (steps). Default: 60. */
  totalTrainingSteps?: number | undefined;
  /** Length of the run as passes over the training problems, in whole batches; totalTrainingSteps wins where it is written. Allowed: integer >= 1 (epochs). */
  totalEpochs?: number | undefined;
  stopWhen?: TrainerStopWhenInput | undefined;
  /** on-policy = generate, then train; one-step-off = the next batch is generated while a step trains; fully-async = both go on all the time, as asyncTraining says. docs/pipelines.md. Allowed: on-policy | one-step-off | fully-async. Default: "on-policy". */
  pipeline?: 'on-policy' | 'one-step-off' | 'fully-async' | undefined;
  /** colocated = training and rollout on one device; split = on two of this machine, to which weights travel as rollout.checkpointEngine says. Allowed: colocated | split. Default: "colocated". */
  placement?: 'colocated' | 'split' | undefined;
  /** Evaluate every so many; 0 = only before and after. Allowed: integer >= 0, or -1 = 0 (steps). Default: 20. */
  testFreq?: number | undefined;
  /** Checkpoint every so many; 0 = only by saveMinutes, at the end and on Ctrl-C. Allowed: integer >= 0, or -1 = 0 (steps). Default: 0. */
  saveFreq?: number | undefined;
  /** Checkpoint when so many have passed since the last; the next one takes its place. 0 = off. Allowed: >= 0 (minutes). Default: 30. */
  saveMinutes?: number | undefined;
  /** Evaluate at step 0, so that there is something to compare with. Allowed: true | false. Default: true. */
  valBeforeTrain?: boolean | undefined;
  /** Write what every sample spent its time on, for webgrpo profile. Allowed: true | false. Default: true. */
  profile?: boolean | undefined;
  /** The profile also says how long the GPU computed, where the adapter has timestamps. Allowed: true | false. Default: false. */
  profileGpu?: boolean | undefined;
  /** Sampled rollouts written per step, for reading; 0 = none. Allowed: integer >= 0 (samples). Default: 8. */
  logRollouts?: number | undefined;
  /** Keep every sample of a step with its tokens, log-probs and rewards, for webgrpo replay; a number = of the last so many steps. Allowed: true | false | integer >= 1 (steps). Default: false. */
  keepRollouts?: boolean | number | undefined;
  /** Answers of each evaluation written beside them; 0 = none. Allowed: integer >= 0 (samples). Default: 0. */
  logValGenerations?: number | undefined;
  /** The run folder is <defaultLocalDir>/<name>. Allowed: text. Default: "runs". */
  defaultLocalDir?: string | undefined;
  /** Refresh the reference of KL terms from the policy every so many; 0 = never. Allowed: integer >= 0 (steps). Default: 0. */
  refUpdateFreq?: number | undefined;
  /** Share of the policy in a refreshed reference; 1 = a copy. Allowed: 0 to 1. Default: 1. */
  refMixupAlpha?: number | undefined;
  /** auto = time the kernels once where the built-in choice was not measured; off = built in; or a file of webgrpo tune. Allowed: text. Default: "auto". */
  kernelTuning?: string | undefined;
  /** Where metrics go. metrics.jsonl is written in any case: reports and resumed runs read it. Allowed: some of console, jsonl, csv, tensorboard. Default: ["console","jsonl"]. */
  logger?: 'console' | 'jsonl' | 'csv' | 'tensorboard' | ('console' | 'jsonl' | 'csv' | 'tensorboard')[] | undefined;
  /** disable = from scratch, an earlier run of the name is kept under another; auto = from the newest checkpoint in the run folder, if there is one; resume_path = from resumeFromPath. Allowed: disable | auto | resume_path. Default: "disable". */
  resumeMode?: 'disable' | 'auto' | 'resume_path' | undefined;
  /** Checkpoint or run folder to go on from; read where resumeMode is resume_path. Allowed: text. */
  resumeFromPath?: string | undefined;
  /** Earlier name: true = resumeMode auto. Allowed: true | false. */
  resume?: boolean | undefined;
  /** A sample whose reward, agent loop or tool parser fails: stop = the run ends; skip = the sample has no reward, counted in training/faulty_samples. Allowed: stop | skip. Default: "stop". */
  onError?: 'stop' | 'skip' | undefined;
  /** The newest that are kept, older ones are deleted; absent = all. The best one by metricForBestModel is kept besides. Allowed: integer >= 1 (checkpoints). */
  maxActorCkptToKeep?: number | undefined;
  /** Save a checkpoint whenever this metric is at its best, e.g. val-core/gsm8k-tool/acc/mean@1; absent = off. Allowed: text. */
  metricForBestModel?: string | undefined;
  /** Of that metric; absent = true, but false where its name ends in 'loss'. Allowed: true | false. */
  greaterIsBetter?: boolean | undefined;
}

interface TrainerStopWhenInput {
  /** Name of a metric as metrics.jsonl has it, e.g. val-core/countdown/acc/mean@1. Allowed: text. Required. */
  metric: string;
  /** The run is done when the metric is at least this ... Allowed: any number. */
  atLeast?: number | undefined;
  /** ... or at most this. Allowed: any number. */
  atMost?: number | undefined;
}
