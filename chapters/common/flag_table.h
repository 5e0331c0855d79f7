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
  /// The training, unless ranks share batches: then only what batch_parts makes of it.
  batch_parts,
};

/// The chapters that offer a flag.
struct Chapters {
  std::vector<int> numbers = {};  ///< empty: all
  std::string elsewhere = "";     ///< why the other chapters do not offer it
};

struct Flag {
  std::string name;   ///< without dashes
  std::string group;  ///< its heading in --help
  FlagValue value;
  Scope scope;
  std::string help;
  Chapters chapters = {};

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

/// Returns whether a flag, named without dashes, is on the command line.
using WasGiven = std::function<bool(const std::string& flag)>;

}  // namespace stagecoach
