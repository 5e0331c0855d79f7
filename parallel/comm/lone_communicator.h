#pragma once
/// @file
/// The communicator of a rank of a plan, which runs without the other ranks.

#include <memory>
#include <utility>
#include <vector>

#include "parallel/comm/passing_communicator.h"

namespace stagecoach {

/// Stands in for one rank of several. Nothing is exchanged, and tensors may have no elements: sums are this rank's own,
/// what is gathered are copies of it, and in an all-to-all it receives as many rows as it sends, its own.
class LoneCommunicator final : public PassingCommunicator {
 public:
  /// `comm` has one rank, and stands for a group of `ranks`.
  explicit LoneCommunicator(std::unique_ptr<Communicator> comm, int ranks = 1)
      : PassingCommunicator(*comm), comm_(std::move(comm)), ranks_(ranks) {}
  void all_reduce(Tensor& /*tensor*/) override {}
  void reduce(Tensor& /*tensor*/, int /*root*/) override {}
  void broadcast(Tensor& /*tensor*/, int /*root*/) override {}
  std::vector<Tensor> all_gather(const Tensor& tensor) override {
    const Waiting waiting(clock());
    std::vector<Tensor> parts;
    for (int rank = 0; rank < ranks_; ++rank) {
      parts.push_back(tensor.clone());
    }
    return parts;
  }
  void all_gather_into(Tensor& /*whole*/, const Tensor& /*part*/) override {}
  Tensor all_to_all(const Tensor& rows, const RowCounts& /*send_rows*/, const RowCounts& /*receive_rows*/) override {
    const Waiting waiting(clock());
    return rows.clone();
  }
  std::unique_ptr<Communicator> duplicate() override {
    return std::make_unique<LoneCommunicator>(comm_->duplicate(), ranks_);
  }

 private:
  std::unique_ptr<Communicator> comm_;
  int ranks_;
};

}  // namespace stagecoach
