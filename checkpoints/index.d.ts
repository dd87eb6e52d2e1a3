/** 0.41 M parameters, trained by imitation to solve short word problems with the tool `calculator`; its vocabulary is that of the task's templates. */
export declare const gsm8kTool: Readonly<Record<string, URL>>;
