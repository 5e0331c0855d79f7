#pragma once
/// @file
/// What the header of an image's file says.

#include "datasets/resize.h"

namespace stagecoach {

struct ImageHeader {
  ImageSize size;          ///< as stored
  int orientation = 1;     ///< 1 … 8: how to turn the stored pixels (exif.h); 1: they are upright
  bool has_alpha = false;  ///< pixels may be transparent
};

}  // namespace stagecoach
