#pragma once
/// @file
/// The flags of the chapter programs: one row per flag.

#include <functional>
#include <string>
#include <vector>

#include "chapters/common/chapter.h"
#include "chapters/common/flag_value.h"

namespace stagecoach {

/// What a flag's value affects, which decides where it is saved.
enum class Scope {
  command,   ///< this command only; it is not saved
  run,       ///< the run; it is saved in config.json, and may change with --resume
  training,  ///< the training: another value would lead to other weights, so --resume refuses it
  /// The training of an asynchronous pipeline, where stages and replicas determine the delay of gradients; otherwise
  /// the run.
  asynchronous_training,
  /// The training of such a pipeline, or of ranks that compress gradients; otherwise the run.
  rank_dependent_training,
  /// The training if the learning rate falls until its end; otherwise the run.
  scheduled_training,
  /// The training, unless ranks share batches: then only what batch_parts makes of it.
  batch_parts,
};

struct Flag {
  std::string name;  ///< without dashes
  FlagValue value;
  Scope scope;
  std::vector<int> chapters;  ///< that offer it; empty: all
  std::string help;
  std::string group = "";  ///< its heading in --help

  bool is_offered_by(int chapter) const;
  /// Returns whether another value of this flag in `settings` would lead to other weights.
  bool shapes_training(const Settings& settings) const;
  bool is_saved() const { return scope != Scope::command; }
};

/// Returns all flags, in the order of --help and config.json, including flags of other chapters. The help texts and the
/// valid words are those of `chapter`.
std::vector<Flag> flag_table(const Chapter& chapter);

/// Returns the flags of no chapter in particular, made once.
const std::vector<Flag>& flag_table();
/// Returns the one of that name, which must exist.
const Flag& flag_named(std::string_view name);

/// Returns whether a flag, named without dashes, is on the command line.
using WasGiven = std::function<bool(const std::string& flag)>;

}  // namespace stagecoach
