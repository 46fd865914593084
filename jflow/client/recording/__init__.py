"""Recording: what the sessions of a process do on a cluster, written into a run log."""

from jflow.client.recording.recorder import recorder_of as recorder_of
from jflow.client.recording.session_recorder import SessionRecorder as SessionRecorder
from jflow.client.recording.session_recorder import StepRecorder as StepRecorder
