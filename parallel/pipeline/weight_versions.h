#pragma once
/// @file
/// The versions of a stage's weights on a rank. A version is storage: the parameters name that of one version at a
/// time, and an update writes the next one beside it when the old one is still needed.

#include <cstddef>
#include <map>
#include <vector>

#include "nn/named_tensors.h"
#include "parallel/schedule/ledger.h"

namespace stagecoach {

class WeightVersions {
 public:
  /// For one run of the actions of `rank`. `parameters` are leaves, those of its stage; what they hold is version 0.
  WeightVersions(NamedTensors parameters, const Schedule& schedule, const Ledger& ledger, int rank);

  /// Before the action at `action_index` of the rank's list, in rising order: the parameters name the version that the
  /// ledger says. For a forward or backward nothing is copied. An update gets the next version, which begins as the
  /// newest one: that is copied if a later action needs it; otherwise the update writes over it.
  void choose(std::size_t action_index);
  /// After it: frees versions that no later action needs. The newest one always stays.
  void free_unneeded(std::size_t action_index);

  /// The number of versions kept now, and the largest number kept at once.
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
