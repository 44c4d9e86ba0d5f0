"""INSTRUCTOR: a dual encoder that is told by an instruction what the text is for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, Unpack

from crossjem_pl.rankers.base import init_arguments, register
from crossjem_pl.rankers.dual.public import load_projections, pools_prompt, read_sentence_encoder
from crossjem_pl.rankers.dual.towers import DualRanker, ProjectionSpec, TextOptions, TextTower
from crossjem_pl.rankers.folder import PublicFolders

__all__ = ["ITEM_INSTRUCTION", "QUERY_INSTRUCTION", "Instructor"]

QUERY_INSTRUCTION = "Represent the query for retrieving relevant titles: "
ITEM_INSTRUCTION = "Represent the title for retrieval: "


@register
class Instructor(DualRanker, PublicFolders):
    """INSTRUCTOR (Su et al., arXiv 2212.09741): score = scale * cos(v(I_q + q), v(I_d + d)), one tower.

    The instruction stands in front of the text, the encoder reads both, and v is the mean of the states
    behind the instruction ([CLS], which stands before it, is left out with it; the closing token counts),
    projected. Works zero-shot with the published weights (`from_public`, or `load_ranker` of their folder)
    and can be fine-tuned from any encoder, BERT-like or T5's.

    Args:
        encoder: hub id, folder, or `packaged:all-MiniLM-L6-v2`. Only the encoder is taken from it; a
            published INSTRUCTOR has a projection too, which `from_public` reads.
        query_instruction: what stands in front of a query. The published models know the form "Represent the
            <domain> <kind of text> for <task>: ".
        item_instruction: what stands in front of an item.
        scale: factor of the cosines.
        projections: layers between pooling and normalisation.
        options: see `TextOptions`.
    """

    name = "instructor"

    def __init__(
        self,
        encoder: str,
        query_instruction: str = QUERY_INSTRUCTION,
        item_instruction: str = ITEM_INSTRUCTION,
        scale: float = 20.0,
        projections: Sequence[ProjectionSpec] = (),
        **options: Unpack[TextOptions],
    ) -> None:
        init_args = init_arguments(locals(), options)
        super().__init__(init_args, encoder, options, query_instruction, item_instruction)
        for side, row_format in self.formats.items():
            instruction = self.prompt_tokens(side)
            skip = instruction + len(row_format.prefix) if instruction else 0
            self.formats[side] = replace(row_format, skip_first=skip)
        self.text_tower = TextTower(encoder, options, "mean", projections, normalize=True)
        self.build(scale)

    @classmethod
    def adopts(cls, folder: Path, config: dict[str, Any]) -> bool:
        return pools_prompt(folder) is False

    @classmethod
    def from_public(cls, folder: Path) -> Self:
        """The ranker with the weights of a folder that sentence-transformers wrote, scale 1.

        Its prompts "query" and "document" are the instructions, or the defaults where it has none.

        Raises:
            ValueError: for anything but a Transformer, mean Pooling, Dense layers and cosine similarity, or
                weights that are not safetensors; names the file.
        """
        arguments, layers = read_sentence_encoder(folder, (QUERY_INSTRUCTION, ITEM_INSTRUCTION))
        if arguments.pop("pooling") != "mean" or not arguments.pop("normalize"):
            raise ValueError(f"{folder}: INSTRUCTOR pools by mean and compares by cosine")
        for side in ("query", "item"):
            arguments[f"{side}_instruction"] = arguments.pop(f"{side}_prompt")
        ranker = cls(**arguments, scale=1.0)
        load_projections(ranker.text_tower.projections, layers)
        return ranker
