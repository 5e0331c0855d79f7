#pragma once
/// @file
/// A communicator that passes every call on to another one: the base of those that change or watch a few calls.

#include <memory>
#include <optional>
#include <vector>

#include "parallel/comm/communicator.h"

namespace stagecoach {

/// The other communicator must outlive this one. Groups that split() and duplicate() return are those of the other one.
class PassingCommunicator : public Communicator {
 public:
  explicit PassingCommunicator(Communicator& comm) : Communicator(comm), comm_(comm) {}

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
  void all_gather_into(Tensor& whole, const Tensor& part) override { comm_.all_gather_into(whole, part); }
  Tensor reduce_scatter(const Tensor& tensor) override { return comm_.reduce_scatter(tensor); }
  Tensor all_to_all(const Tensor& rows, const RowCounts& send_rows, const RowCounts& receive_rows) override {
    return comm_.all_to_all(rows, send_rows, receive_rows);
  }
  void barrier() override { comm_.barrier(); }
  std::unique_ptr<Communicator> split(int colour, int key) override { return comm_.split(colour, key); }
  std::unique_ptr<Communicator> duplicate() override { return comm_.duplicate(); }
  CommunicatorControls& controls() override { return comm_.controls(); }

 private:
  Communicator& comm_;
};

}  // namespace stagecoach
