// Octet as a library: docs/library.md.
#pragma once

#include "octet/error.h"
#include "octet/export.h"
#include "octet/graph.h"
#include "octet/machine.h"
#include "octet/messages.h"
#include "octet/model.h"
#include "octet/training.h"
