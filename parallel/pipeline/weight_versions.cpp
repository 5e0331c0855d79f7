#include "parallel/pipeline/weight_versions.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace stagecoach {

WeightVersions::WeightVersions(NamedTensors parameters, const Schedule& schedule, const Ledger& ledger, int rank)
    : parameters_(std::move(parameters)),
      versions_(ledger[static_cast<std::size_t>(rank)]),
      last_uses_(last_uses(schedule, ledger, rank)) {
  kept_[0] = {};  // a stage without parameters has a version too
  for (const auto& [name, parameter] : parameters_) {
    kept_[0].push_back(parameter.detach());
  }
}

void WeightVersions::choose(std::size_t action_index) {
  if (versions_[action_index] == kNoVersion) {
    return;
  }
  if (versions_[action_index] > newest_) {  // only an update makes a new version
    advance(action_index);
  }
  use(versions_[action_index]);
}

void WeightVersions::free_unneeded(std::size_t action_index) {
  const auto freed = std::erase_if(
      kept_, [&](const auto& kept) { return kept.first != newest_ && !needed_after(kept.first, action_index); });
  if (freed > 0) {
    use(newest_);  // the parameters may still refer to a version that is freed
  }
}

bool WeightVersions::needed_after(int version, std::size_t action_index) const {
  return last_uses_[static_cast<std::size_t>(version)] > action_index;
}

void WeightVersions::use(int version) {
  const auto found = kept_.find(version);
  STAGECOACH_CHECK(found != kept_.end(), "weights: version {} is no longer kept; the newest version is {}", version,
                   newest_);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].second.rebind(found->second[i]);
  }
}

void WeightVersions::advance(std::size_t action_index) {
  auto next = kept_.extract(newest_);
  if (needed_after(newest_, action_index)) {
    kept_[newest_] = next.mapped();
    for (Tensor& tensor : next.mapped()) {
      tensor = tensor.clone();
    }
  }
  next.key() = ++newest_;
  kept_.insert(std::move(next));
  peak_ = std::max(peak_, kept_.size());
}

}  // namespace stagecoach
