#include "parallel/pipeline/gather.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <sstream>

#include "nn/safetensors.h"

namespace stagecoach {
namespace {

constexpr int kTag = 0;

/// Returns those of `tensors` that belong to `layer`, one of `layers`.
NamedTensors tensors_of_layer(const LayerRanks& layers, const LayerRanks::value_type& layer,
                              const NamedTensors& tensors) {
  NamedTensors found;
  std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(found),
               [&](const auto& named) { return layer_of(layers, named.first) == &layer; });
  return found;
}

void send_text(Communicator& comm, const std::string& text, int to) {
  const std::vector<std::uint8_t> bytes(text.begin(), text.end());
  const auto length = static_cast<std::int64_t>(bytes.size());
  comm.send_number(static_cast<double>(length), to, kTag);
  if (length > 0) {
    comm.send(Tensor::from(bytes, {length}, comm.device()), to, kTag);
  }
}

std::string receive_text(Communicator& comm, int from) {
  const auto length = static_cast<std::int64_t>(comm.receive_number(from, kTag));
  if (length == 0) {
    return "";
  }
  const auto bytes = comm.receive({length}, DType::uint8, from, kTag).to_vector<std::uint8_t>();
  return {bytes.begin(), bytes.end()};
}

using Announced = TensorFileWriter::Announced;

/// Returns one line per tensor: its name, checksum, type, number of dimensions and extents.
std::string text_of(const std::vector<Announced>& tensors) {
  std::ostringstream list;
  for (const auto& [info, crc] : tensors) {
    list << info.name << ' ' << crc << ' ' << static_cast<int>(info.dtype) << ' ' << info.shape.dims();
    for (const std::int64_t extent : info.shape) {
      list << ' ' << extent;
    }
    list << '\n';
  }
  return list.str();
}

std::vector<Announced> announced_from(const std::string& text) {
  std::vector<Announced> tensors;
  std::istringstream list(text);
  std::uint32_t crc = 0;
  int dtype = 0;
  int dims = 0;
  for (std::string name; list >> name >> crc >> dtype >> dims;) {
    std::int64_t extents[Shape::kMaxDims] = {};
    for (int d = 0; d < dims; ++d) {
      list >> extents[d];
    }
    tensors.push_back({{name, static_cast<DType>(dtype), Shape(extents, dims)}, crc});
  }
  return tensors;
}

enum class Checksums { no, yes };

/// Returns, on rank 0, a description of the tensors of each rank's own layers.
std::vector<std::vector<Announced>> gather_announced(Communicator& comm, const LayerRanks& layers,
                                                     const NamedTensors& mine, Checksums checksums) {
  std::vector<Announced> announced;
  for (const auto& [name, tensor] : tensors_of_rank(layers, comm.rank(), mine)) {
    announced.push_back({{name, tensor.dtype(), tensor.shape()}, checksums == Checksums::yes ? crc32_of(tensor) : 0});
  }
  std::vector<std::vector<Announced>> all;
  for (const std::string& text : gather_texts(comm, text_of(announced))) {
    all.push_back(announced_from(text));
  }
  return all;
}

}  // namespace

void gather_each(Communicator& comm, const LayerRanks& layers, const NamedTensors& mine,
                 const std::function<void(const std::string& name, const Tensor& tensor)>& take) {
  const auto announced = gather_announced(comm, layers, mine, Checksums::no);
  for (const auto& layer : layers) {
    const int owner = layer.second;
    if (owner == comm.rank()) {
      for (const auto& [name, tensor] : tensors_of_layer(layers, layer, mine)) {
        if (owner == 0) {
          take(name, tensor.to(Device{}));
        } else {
          comm.send(tensor.clone(), 0, kTag);  // a copy: the receiver keeps the tensor while training continues here
        }
      }
    } else if (comm.rank() == 0) {
      for (const auto& [info, crc] : announced[static_cast<std::size_t>(owner)]) {
        if (layer_of(layers, info.name) == &layer) {
          take(info.name, comm.receive(info.shape, info.dtype, owner, kTag).to(Device{}));
        }
      }
    }
  }
}

NamedTensors gather_tensors(Communicator& comm, const LayerRanks& layers, const NamedTensors& mine) {
  NamedTensors all;
  gather_each(comm, layers, mine,
              [&](const std::string& name, const Tensor& tensor) { all.emplace_back(name, tensor); });
  return all;
}

void save_gathered_weights(Communicator& comm, const LayerRanks& layers, const NamedTensors& parameters,
                           const NamedTensors& buffers, const std::string& path) {
  std::vector<Announced> all;
  for (const NamedTensors* mine : {&parameters, &buffers}) {
    const auto announced = gather_announced(comm, layers, *mine, Checksums::yes);
    for (auto layer = layers.begin(); comm.rank() == 0 && layer != layers.end(); ++layer) {
      const auto& theirs = announced[static_cast<std::size_t>(layer->second)];
      std::copy_if(theirs.begin(), theirs.end(), std::back_inserter(all),
                   [&](const Announced& one) { return layer_of(layers, one.info.name) == &*layer; });
    }
  }
  std::optional<TensorFileWriter> file;
  if (comm.rank() == 0) {
    file.emplace(path, all);
  }
  for (const NamedTensors* mine : {&parameters, &buffers}) {
    gather_each(comm, layers, *mine, [&](const std::string&, const Tensor& tensor) { file->add(tensor); });
  }
  if (file) {
    file->commit();
  }
}

std::vector<std::string> gather_texts(Communicator& comm, const std::string& mine) {
  if (comm.rank() != 0) {
    send_text(comm, mine, 0);
    return {};
  }
  std::vector<std::string> all{mine};
  for (int r = 1; r < comm.size(); ++r) {
    all.push_back(receive_text(comm, r));
  }
  return all;
}

const std::pair<std::string, int>* layer_of(const LayerRanks& layers, const std::string& tensor) {
  const LayerRanks::value_type* found = nullptr;
  for (const auto& entry : layers) {
    const std::string& layer = entry.first;
    const bool begins = tensor.size() > layer.size() && tensor[layer.size()] == '.' && tensor.starts_with(layer);
    if (begins && (found == nullptr || layer.size() > found->first.size())) {
      found = &entry;
    }
  }
  return found;
}

bool is_of_rank(const LayerRanks& layers, int rank, const std::string& tensor) {
  const auto* layer = layer_of(layers, tensor);
  return layers.empty() || (layer != nullptr && layer->second == rank);
}

NamedTensors tensors_of_rank(const LayerRanks& layers, int rank, const NamedTensors& tensors) {
  if (layers.empty()) {
    return tensors;
  }
  NamedTensors found;
  for (const auto& layer : layers) {
    if (layer.second == rank) {
      const NamedTensors layer_tensors = tensors_of_layer(layers, layer, tensors);
      found.insert(found.end(), layer_tensors.begin(), layer_tensors.end());
    }
  }
  return found;
}

}  // namespace stagecoach
