"""Ready experiments: a preset is a YAML file here, full or as differences from another.

`about` tells what to expect of it and when that was measured, `extends` names the preset it starts
from and `changes` holds dotted keys; the root preset `phrasebook` holds the full `params` instead.
Each row of Table 3 is a preset as well, made of `base` (short for `wmt14-en-de-base`) and
table3.yaml.
"""

from __future__ import annotations

from seq2sweep.presets.catalogue import EARLIER_COMMENTS as EARLIER_COMMENTS
from seq2sweep.presets.catalogue import SHORT as SHORT
from seq2sweep.presets.catalogue import Preset as Preset
from seq2sweep.presets.catalogue import is_unchanged as is_unchanged
from seq2sweep.presets.catalogue import load as load
from seq2sweep.presets.catalogue import names as names
from seq2sweep.presets.catalogue import overview as overview
