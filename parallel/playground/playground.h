#pragma once
/// @file
/// The schedule library behind a C interface, which docs/playground calls as WebAssembly. Numbers go in and out as
/// typed arrays, so that a schedule of 64 ranks and 512 micro-batches costs no text.
///
/// There is one schedule at a time: playground_make, _make_pipedream, _read or _repair sets it, playground_simulate
/// times it. These return 0 if they fail; PLAYGROUND_MESSAGE then says why. Pointers are valid until the next call.
/// All calls must come from one thread.

extern "C" {

/// Generates a schedule; the arguments are those of make_schedule (schedule_kinds.h).
int playground_make(const char* kind, int ranks, int microbatches, int chunks, int group);
/// Generates PipeDream's with one rank per stage; `versions` is the index of a policy (versions.h).
int playground_make_pipedream(int ranks, int microbatches, int batch, int versions);
/// Reads a table in PyTorch's notation (text.h).
int playground_read(const char* table);
/// Replaces the schedule by the nearest legal one (nearest_legal.h).
int playground_repair();

/// Returns where the costs of the schedule go, in any unit, for s stages on p ranks: [s] forward, [s] backward, [s]
/// input gradient, [s] weight gradient, [s - 1] message, [s - 1] the part of it in which the link is busy, [p] update.
double* playground_costs();

/// Checks, lowers and times the schedule: see LowerOptions; `recompute` is a truth value. Returns 2 if it is legal. If
/// it is not, PLAYGROUND_MESSAGE has its problems, one per line, and the result is 1 if there are times up to the
/// moment when no rank can continue, or 0.
int playground_simulate(int receives, int sends_wait, int recompute);
/// Adds what takes longer to find out, for a legal schedule: PLAYGROUND_EXPLANATION and PLAYGROUND_TRAFFIC.
int playground_explain();
/// Returns the idle share that the schedule of the last playground_make has with other micro-batches; NaN if there is
/// none.
double playground_idle(int microbatches);

enum PlaygroundText {
  PLAYGROUND_MESSAGE,
  PLAYGROUND_TABLE,    ///< the computations
  PLAYGROUND_LOWERED,  ///< with messages: as PyTorch's format "compute_comms", or with the updates that it does not
                       ///< know
  PLAYGROUND_KINDS,    ///< a line per schedule: name, summary, fewest and most chunks, takes a group, sends wait
};
const char* playground_text(int which);

enum PlaygroundArray {
  PLAYGROUND_RANK_BEGIN,     ///< int32 [p + 1]: the index of each rank's first action
  PLAYGROUND_ACTIONS,        ///< int32 [actions, 4]: operation, stage, micro-batch, version of the weights or -1
  PLAYGROUND_TIMES,          ///< double [actions, 3]: start, end, arrival of a receive's message; NaN if never
  PLAYGROUND_RANKS,          ///< int32 [p, 7]: peak activations; peak versions and largest delay of a gradient; the
                             ///< index of the action at which the rank is stuck or -1, and what that one misses:
                             ///< operation or -1, stage, micro-batch
  PLAYGROUND_RANK_TIMES,     ///< double [p, 3]: end, busy, span
  PLAYGROUND_FIGURES,        ///< double [3]: step, idle share, idle share within the ranks' spans
  PLAYGROUND_STAGE_TO_RANK,  ///< int32 [s]
  PLAYGROUND_EXPLANATION,    ///< double [11]: the five SimulatedParts; step and idle share in the steady state; rank,
                             ///< stage, excess and speedup of the StageBottleneck, or -1
  PLAYGROUND_TRAFFIC,        ///< int32 [links, 3]: from, to, messages
};
const void* playground_array(int which);
/// Returns the number of elements of the array.
int playground_length(int which);
}
