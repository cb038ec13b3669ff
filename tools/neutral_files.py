"""The proofs of tools/neutral_keys.py for all files but config.json."""
import neutral_gguf
import neutral_quantization
import neutral_sentences

READERS = {**neutral_sentences.READERS, **neutral_quantization.READERS, **neutral_gguf.READERS}
