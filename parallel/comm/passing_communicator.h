#pragma once
/// @file
/// A communicator that passes every call on to another one: the base of those that change or watch a few calls.

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "parallel/comm/communicator.h"

namespace stagecoach {

/// The other communicator must outlive this one. Groups that split() and duplicate() return are those of the other one.
class PassingCommunicator : public Communicator {
 public:
  explicit PassingCommunicator(Communicator& comm) : comm_(comm) {}

  int rank() const override { return comm_.rank(); }
  int size() const override { return comm_.size(); }
  Device device() const override { return comm_.device(); }
  Clock& clock() override { return comm_.clock(); }
  const Link& link_to(int rank) override { return comm_.link_to(rank); }
  PendingSend send_async(const Tensor& tensor, int to, int tag) override { return comm_.send_async(tensor, to, tag); }
  PendingReceive receive_async(const Shape& shape, DType dtype, int from, int tag) override {
    return comm_.receive_async(shape, dtype, from, tag);
  }
  void send_number(double number, int to, int tag) override { comm_.send_number(number, to, tag); }
  double receive_number(int from, int tag) override { return comm_.receive_number(from, tag); }
  std::optional<double> try_receive_number(int from, int tag) override { return comm_.try_receive_number(from, tag); }
  void all_reduce(Tensor& tensor) override { comm_.all_reduce(tensor); }
  void reduce(Tensor& tensor, int root) override { comm_.reduce(tensor, root); }
  void broadcast(Tensor& tensor, int root) override { comm_.broadcast(tensor, root); }
  std::vector<Tensor> all_gather(const Tensor& tensor) override { return comm_.all_gather(tensor); }
  Tensor reduce_scatter(const Tensor& tensor) override { return comm_.reduce_scatter(tensor); }
  void barrier() override { comm_.barrier(); }
  std::unique_ptr<Communicator> split(int colour, int key) override { return comm_.split(colour, key); }
  std::map<int, double> bytes_sent() const override { return comm_.bytes_sent(); }
  std::unique_ptr<Communicator> duplicate() override { return comm_.duplicate(); }
  void set_spinning(bool spinning) override { comm_.set_spinning(spinning); }
  void leave_record_in(const std::filesystem::path& folder) override { comm_.leave_record_in(folder); }
  void stop_recording() override { comm_.stop_recording(); }
  void renew_waits() override { comm_.renew_waits(); }
  void abort() override { comm_.abort(); }

 private:
  Communicator& comm_;
};

}  // namespace stagecoach
