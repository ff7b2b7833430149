"""params.yaml: its typed sections, and how they are read, written and told apart."""

from seq2sweep.config.architectures import BytenetConfig as BytenetConfig
from seq2sweep.config.architectures import ConvolutionalConfig as ConvolutionalConfig
from seq2sweep.config.architectures import ModelConfig as ModelConfig
from seq2sweep.config.architectures import RecurrentConfig as RecurrentConfig
from seq2sweep.config.architectures import TransformerConfig as TransformerConfig
from seq2sweep.config.architectures import target_size as target_size
from seq2sweep.config.datasets import DataConfig as DataConfig
from seq2sweep.config.datasets import ParsingConfig as ParsingConfig
from seq2sweep.config.datasets import PhrasebookConfig as PhrasebookConfig
from seq2sweep.config.datasets import PrepareConfig as PrepareConfig
from seq2sweep.config.datasets import SelfTrainingConfig as SelfTrainingConfig
from seq2sweep.config.datasets import VocabularyConfig as VocabularyConfig
from seq2sweep.config.execution import KEEPING_FAILURES as KEEPING_FAILURES
from seq2sweep.config.execution import ClusterConfig as ClusterConfig
from seq2sweep.config.execution import SweepConfig as SweepConfig
from seq2sweep.config.execution import Table1Config as Table1Config
from seq2sweep.config.execution import TrackingConfig as TrackingConfig
from seq2sweep.config.fields import is_address as is_address
from seq2sweep.config.fields import is_language as is_language
from seq2sweep.config.fields import shown as shown
from seq2sweep.config.loading import DECISIVE as DECISIVE
from seq2sweep.config.loading import DEFAULTS as DEFAULTS
from seq2sweep.config.loading import OPTIONAL as OPTIONAL
from seq2sweep.config.loading import architectures as architectures
from seq2sweep.config.loading import broken_rules as broken_rules
from seq2sweep.config.loading import chosen as chosen
from seq2sweep.config.loading import code_of_kinds as code_of_kinds
from seq2sweep.config.loading import dump as dump
from seq2sweep.config.loading import fingerprint as fingerprint
from seq2sweep.config.loading import flatten as flatten
from seq2sweep.config.loading import from_dict as from_dict
from seq2sweep.config.loading import help_texts as help_texts
from seq2sweep.config.loading import identity as identity
from seq2sweep.config.loading import kinds as kinds
from seq2sweep.config.loading import load as load
from seq2sweep.config.loading import parse as parse
from seq2sweep.config.loading import section as section
from seq2sweep.config.loading import to_dict as to_dict
from seq2sweep.config.loading import with_changes as with_changes
from seq2sweep.config.schema import KEEPING as KEEPING
from seq2sweep.config.schema import Config as Config
from seq2sweep.config.schema import EvaluateConfig as EvaluateConfig
from seq2sweep.config.schema import TrainConfig as TrainConfig

CHANGES_NO_RESULT = "how parameters are read: their values are compared themselves"
