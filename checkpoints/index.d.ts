/** 0.41 M parameters, trained by imitation to solve short word problems with the tool `calculator`; its vocabulary is that of the task's templates. */
export declare const gsm8kTool: Readonly<Record<string, URL>>;
/** 0.1 M parameters, trained by imitation to write two or three letters backwards; right in three of ten tries. Lesson 3 trains it. */
export declare const reverseText: Readonly<Record<string, URL>>;
