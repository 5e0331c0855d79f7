#pragma once
/// @file
/// The versions of a stage's weights on a rank. Each version has its own storage. The parameters refer to one version
/// at a time; an update writes the next version to new storage if the old one is still needed.

#include <cstddef>
#include <map>
#include <vector>

#include "nn/named_tensors.h"
#include "parallel/schedule/ledger.h"

namespace stagecoach {

class WeightVersions {
 public:
  /// Prepares one run of the actions of `rank`. `parameters` are the leaves of its stage; their values are version 0.
  WeightVersions(NamedTensors parameters, const Schedule& schedule, const Ledger& ledger, int rank);

  /// Makes the parameters refer to the version that the ledger assigns to the action at `action_index` of the rank's
  /// list. Call it before each action, in rising order. A forward or backward copies nothing. An update gets a new
  /// version that begins with the values of the newest one: a copy if a later action needs the old one; otherwise the
  /// update overwrites it.
  void choose(std::size_t action_index);
  /// Frees versions that no later action needs; call it after the action. The newest version is always kept.
  void free_unneeded(std::size_t action_index);

  /// Returns the number of versions kept now; `peak` returns the largest number kept at once.
  std::size_t count() const { return kept_.size(); }
  std::size_t peak() const { return peak_; }

 private:
  void use(int version);
  void advance(std::size_t action_index);
  bool needed_after(int version, std::size_t action_index) const;

  NamedTensors parameters_;
  std::vector<int> versions_;           // one per action
  std::vector<std::size_t> last_uses_;  // action indices, one per version
  std::map<int, std::vector<Tensor>> kept_;
  int newest_ = 0;
  std::size_t peak_ = 1;
};

}  // namespace stagecoach
