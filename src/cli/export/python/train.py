"""Starts this run in TRL: python train.py (or accelerate launch train.py)."""

from datasets import load_dataset
from peft import LoraConfig
from transformers.utils import is_torch_bf16_gpu_available
from trl import GRPOConfig, GRPOTrainer

from calculator import calculator
from reward import compute_score


def reward(completions, answer, **kwargs):
    """Score of the last message of every completion."""
    return [compute_score("", messages[-1]["content"], truth) for messages, truth in zip(completions, answer)]


def main():
    data = load_dataset("parquet", data_files={"train": "data/train.parquet", "test": "data/test.parquet"})
    args = GRPOConfig(
        # On a device without bfloat16, such as a CPU, TRL's default stops the script.
        bf16=is_torch_bf16_gpu_available(),
    )
    trainer = GRPOTrainer(
        model="model",
        args=args,
        reward_funcs=reward,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        tools=[calculator],
        peft_config=LoraConfig(),
    )
    trainer.train()
    trainer.save_model("out/model")


if __name__ == "__main__":
    main()
