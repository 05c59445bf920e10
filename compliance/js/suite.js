// All tests in one process: they share the pools of entities. Run by ../run.py.

import "./tests/queues.js";
import "./tests/sessions.js";
import "./tests/topics.js";
import "./tests/schedules.js";
import "./tests/transports.js";
import "./tests/administration.js";
import "./tests/ill_partition.js";
